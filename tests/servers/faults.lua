-- What FaultServer's nginx does to requests. One process, one Lua state: plain tables hold it all.
local ffi = require "ffi"
local base = require "resty.core.base"
local semaphore = require "ngx.semaphore"

ffi.cdef [[
int setsockopt(int fd, int level, int name, const void *value, unsigned int size);
]]

local SOL_SOCKET, SO_MAX_PACING_RATE, UNPACED = 1, 47, 0xffffffff
local CLOSE = 444 -- nginx's own status: close the connection without a word

local M = { rules = {}, started = 0, finished = 0, sent = 0, replaced = semaphore.new() }

-- One rule a line, each a query string: kind=cut&at=1000&count=3
local function parsed(text)
    local rules = {}
    for line in text:gmatch("[^\n]+") do
        local rule = ngx.decode_args(line)
        for _, name in ipairs { "at", "by", "seconds", "rate", "status", "skip", "count", "chance" } do
            rule[name] = tonumber(rule[name])
        end
        rule.hits = 0
        rules[#rules + 1] = rule
    end
    return rules
end

-- PUT: new rules; both: requests begun and ended, open connections, bytes of bodies.
function M.control()
    if ngx.req.get_method() == "PUT" then
        ngx.req.read_body()
        M.rules = parsed(ngx.req.get_body_data() or "")
        local replaced = M.replaced
        M.replaced = semaphore.new()
        replaced:post(math.max(1, -replaced:count())) -- count: below 0, how many wait
    end
    ngx.print(M.started, " ", M.finished, " ", ngx.var.connections_active, " ", M.sent)
end

local function applies(rule)
    if rule.path and not ngx.var.request_uri:find(rule.path, 1, true) then return false end
    if rule.method and rule.method ~= ngx.req.get_method() then return false end
    if rule.chance < 1 and math.random() >= rule.chance then return false end
    rule.hits = rule.hits + 1
    return rule.hits > rule.skip and (rule.count == 0 or rule.hits <= rule.skip + rule.count)
end

-- The kernel paces what this connection sends. `ngx_http_request_t` begins with a signature and the connection, of
-- which the socket is the fourth word.
local paced = {} -- rate of each connection that is not as fast as it can be

local function pace(rate)
    local serial = ngx.var.connection
    if paced[serial] == rate then return end
    paced[serial] = rate
    local connection = ffi.cast("void **", base.get_request())[1]
    local socket = ffi.cast("int *", connection)[6]
    local value = ffi.new("unsigned int[1]", rate or UNPACED)
    if ffi.C.setsockopt(socket, SOL_SOCKET, SO_MAX_PACING_RATE, value, 4) ~= 0 then
        ngx.log(ngx.ERR, "this kernel paces no sockets")
        ngx.exit(500)
    end
end

-- The answer that would have been given, whole and in memory. It comes over a connection of its own: nginx gives
-- subrequests no ranges and looks at no conditions in them.
local function origin()
    ngx.req.read_body()
    local methods = { GET = ngx.HTTP_GET, HEAD = ngx.HTTP_HEAD, PUT = ngx.HTTP_PUT, POST = ngx.HTTP_POST,
                      DELETE = ngx.HTTP_DELETE }
    return ngx.location.capture("/-/origin", {
        method = methods[ngx.req.get_method()], always_forward_body = true,
    })
end

local HOP = { ["connection"] = true, ["transfer-encoding"] = true, ["content-length"] = true }

local function send_head(answer)
    ngx.status = answer.status
    for name, value in pairs(answer.header) do
        if not HOP[name:lower()] then ngx.header[name] = value end
    end
    ngx.header["Content-Length"] = answer.header["Content-Length"] or #answer.body
end

local function send(text)
    if #text > 0 then ngx.print(text) else ngx.send_headers() end
    ngx.flush(true)
end

-- Where in a body a fault happens: `at`, or anywhere.
local function offset(rule, body)
    if #body == 0 then return 0 end
    return (rule.at or math.random(0, #body - 1)) % #body
end

local Kinds = {}

function Kinds.drop() ngx.exit(CLOSE) end

-- What was asked for is done, and the answer gets lost.
function Kinds.lost()
    origin()
    ngx.exit(CLOSE)
end

function Kinds.status(rule)
    ngx.status = rule.status
    ngx.header["Retry-After"] = rule.retry_after
    ngx.header["Content-Type"] = "application/xml"
    ngx.header["Content-Length"] = #(rule.text or "")
    send(ngx.req.get_method() == "HEAD" and "" or rule.text or "")
    ngx.exit(ngx.OK)
end

function Kinds.hang(rule)
    ngx.sleep(rule.seconds)
    ngx.exit(CLOSE)
end

function Kinds.cut(rule)
    local answer = origin()
    send_head(answer)
    send(answer.body:sub(1, offset(rule, answer.body)))
    ngx.exit(CLOSE)
end

-- The body stops somewhere, and the connection stays open.
function Kinds.stall(rule)
    local answer = origin()
    send_head(answer)
    send(answer.body:sub(1, offset(rule, answer.body)))
    ngx.sleep(rule.seconds)
    ngx.exit(CLOSE)
end

-- The rest comes late.
function Kinds.tail(rule)
    local answer = origin()
    local stop = offset(rule, answer.body)
    send_head(answer)
    send(answer.body:sub(1, stop))
    ngx.sleep(rule.seconds)
    send(answer.body:sub(stop + 1))
    ngx.exit(ngx.OK)
end

-- Fewer bytes than the range says, in an answer that is whole.
function Kinds.short(rule)
    local answer = origin()
    answer.body = answer.body:sub(1, offset(rule, answer.body))
    answer.header["Content-Length"] = #answer.body
    send_head(answer)
    send(answer.body)
    ngx.exit(ngx.OK)
end

function Kinds.flip(rule)
    local answer = origin()
    local body, at = answer.body, offset(rule, answer.body)
    send_head(answer)
    if #body > 0 then
        local bit_of = 2 ^ math.random(0, 7)
        body = body:sub(1, at) .. string.char(bit.bxor(body:byte(at + 1), bit_of)) .. body:sub(at + 2)
    end
    send(body)
    ngx.exit(ngx.OK)
end

-- Bytes of another place under the right head.
function Kinds.shift(rule)
    local answer = origin()
    local by = rule.by % math.max(1, #answer.body)
    send_head(answer)
    send(answer.body:sub(by + 1) .. answer.body:sub(1, by))
    ngx.exit(ngx.OK)
end

function Kinds.range(rule)
    local answer = origin()
    local start, stop, size = (answer.header["Content-Range"] or ""):match("bytes (%d+)-(%d+)/(%d+)")
    if start then
        answer.header["Content-Range"] = string.format("bytes %d-%d/%d", start + rule.by, stop + rule.by, size + rule.by)
    end
    send_head(answer)
    send(answer.body)
    ngx.exit(ngx.OK)
end

function Kinds.etag(rule)
    local answer = origin()
    answer.header["ETag"] = rule.text or '"another"'
    send_head(answer)
    send(answer.body)
    ngx.exit(ngx.OK)
end

-- 200 and all bytes, whatever range was asked for.
function Kinds.whole()
    ngx.req.clear_header("Range")
end

function M.access()
    if ngx.is_subrequest then return end
    M.started = M.started + 1
    ngx.var.counted = "1" -- ngx.ctx does not outlive an answer that nginx replaces, such as 412
    local rate, delay, broken = nil, 0, nil
    for _, rule in ipairs(M.rules) do
        if rule.kind == "pace" then
            rate = applies(rule) and rule.rate or rate
        elseif rule.kind == "delay" then
            delay = delay + (applies(rule) and rule.seconds or 0)
        elseif not broken and applies(rule) then
            broken = rule
        end
    end
    pace(rate)
    if delay > 0 then M.replaced:wait(delay) end -- until `replaced` is, if that comes first
    if broken then
        ngx.var.fault = broken.kind
        return Kinds[broken.kind](broken)
    end
end

function M.log()
    if ngx.var.counted == "1" then
        M.finished = M.finished + 1
        M.sent = M.sent + ngx.var.body_bytes_sent
    end
end

return M
