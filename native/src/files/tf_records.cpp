#include "files/tf_records.h"

#include <cstring>
#include <limits>

namespace fastio {
namespace {

constexpr std::size_t head_bytes = 12, foot_bytes = 4;
constexpr int varint = 0, eight = 1, sized = 2, four = 5;
constexpr std::int64_t bytes_list = 1, float_list = 2, int64_list = 3;

/// Reads a varint of at most ten bytes and moves `at` behind it; false if it has no end. Bits above
/// 64 are lost.
bool read_varint(const std::uint8_t*& at, const std::uint8_t* end, std::uint64_t& value) noexcept {
  constexpr unsigned longest = 70;  // bits
  value = 0;
  for (unsigned shift = 0; shift < longest && at < end; shift += 7) {
    const std::uint8_t byte = *at++;
    if (shift < 64) value |= std::uint64_t{byte & 0x7FU} << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

}  // namespace

std::vector<Run> record_places(Bytes file) {
  std::vector<Run> found;
  std::size_t at = 0;
  while (file.size() - at >= head_bytes + foot_bytes) {
    std::uint64_t size = 0;
    std::memcpy(&size, file.data() + at, sizeof size);
    if (size > file.size() - at - head_bytes - foot_bytes) break;
    const std::size_t first = at + head_bytes;
    found.push_back({static_cast<std::int64_t>(first), static_cast<std::int64_t>(size)});
    at = first + size + foot_bytes;
  }
  return found;
}

/// The fields of a message, one after the other; a fault of the parser's ends it.
class ExampleParser::Message {
 public:
  Message(ExampleParser& parser, Bytes bytes) noexcept
      : parser_(&parser), at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  std::uint64_t number = 0;
  int type = 0;
  Bytes value;

  /// Goes to the next field; false at the end, and after a fault.
  bool next() noexcept {
    if (at_ == end_ || parser_->fault_ != ExampleFault::none) return false;
    std::uint64_t tag = 0, size = 0;
    if (!read_varint(at_, end_, tag)) return fail(ExampleFault::endless);
    number = tag >> 3;
    type = static_cast<int>(tag & 7);
    const std::uint8_t* first = at_;
    switch (type) {
      case sized:
        if (!read_varint(at_, end_, size)) return fail(ExampleFault::endless);
        first = at_;
        break;
      case varint: {
        const std::uint8_t* behind = at_;
        std::uint64_t ignored = 0;
        if (!read_varint(behind, end_, ignored)) return fail(ExampleFault::endless);
        size = static_cast<std::uint64_t>(behind - at_);
        break;
      }
      case eight:
      case four: size = type == eight ? 8 : 4; break;
      default: parser_->bad_type_ = type; return fail(ExampleFault::type);
    }
    if (number == 0 || size > static_cast<std::uint64_t>(end_ - first)) {
      return fail(ExampleFault::outside);
    }
    value = Bytes(first, static_cast<std::size_t>(size));
    at_ = first + size;
    return true;
  }

  /// Goes to the next field with a size.
  bool next_sized() noexcept {
    while (next()) {
      if (type == sized) return true;
    }
    return false;
  }

 private:
  bool fail(ExampleFault fault) noexcept {
    parser_->fault_ = fault;
    return false;
  }

  ExampleParser* parser_;
  const std::uint8_t* at_;
  const std::uint8_t* end_;
};

ExampleFault ExampleParser::add(Bytes example) {
  first_ = example.data();
  fault_ = ExampleFault::none;
  Message whole(*this, example);
  while (whole.next_sized()) {
    if (whole.number == 2) fault_ = ExampleFault::sequence;
    if (whole.number != 1) continue;
    Message map(*this, whole.value);
    while (map.next_sized()) {
      if (map.number == 1) entry(Message(*this, map.value));
    }
  }
  return fault_;
}

/// A name and its feature; of several of one, the last counts.
void ExampleParser::entry(Message message) {
  std::string_view name;
  FoundFeature found{};
  const std::size_t before = parts_.size();
  while (message.next_sized()) {
    if (message.number == 1) {
      name = {reinterpret_cast<const char*>(message.value.data()), message.value.size()};
    } else if (message.number == 2) {
      parts_.resize(before);
      found = {};
      feature(Message(*this, message.value), found);
    }
  }
  found.name = number_of(name);
  found.count = static_cast<std::int64_t>(parts_.size() - before);
  features_.push_back(found);
}

/// The list of values; if there are several of one kind they are one, else the last counts.
void ExampleParser::feature(Message message, FoundFeature& found) {
  const std::size_t before = parts_.size();
  while (message.next_sized()) {
    if (message.number < bytes_list || message.number > int64_list) continue;
    const auto kind = static_cast<std::int64_t>(message.number);
    if (kind != found.kind) parts_.resize(before);
    found.kind = kind;
    values(Message(*this, message.value), kind);
  }
}

/// The values of a list; numbers may be packed or single.
void ExampleParser::values(Message message, std::int64_t kind) {
  const int single = kind == float_list ? four : kind == int64_list ? varint : sized;
  while (message.next()) {
    if (message.number != 1 || (message.type != sized && message.type != single)) continue;
    if (message.value.empty() && kind != bytes_list) continue;
    parts_.push_back(
        {message.value.data() - first_, static_cast<std::int64_t>(message.value.size())});
  }
}

std::int64_t ExampleParser::number_of(std::string_view name) {
  const auto [there, is_new] = numbers_.try_emplace(name, static_cast<std::int64_t>(names_.size()));
  if (is_new) names_.push_back(name);
  return there->second;
}

bool read_varints(Bytes bytes, std::vector<std::int64_t>& out) {
  const std::uint8_t* at = bytes.data();
  const std::uint8_t* const end = at + bytes.size();
  while (at != end) {
    std::uint64_t value = 0;
    if (!read_varint(at, end, value)) return false;
    out.push_back(static_cast<std::int64_t>(value));
  }
  return true;
}

}  // namespace fastio
