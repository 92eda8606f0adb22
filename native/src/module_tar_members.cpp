// Tar members as Python asks for them: names, places and spans in, a filled buffer out.
#include <nanobind/stl/pair.h>

#include "fastio/tar_members.h"
#include "module.h"

namespace fastio::python {

using namespace nb::literals;

namespace {

/// One span for each sample; what they point into is kept.
std::unique_ptr<Bytes[]> read_spans(const Spans& spans, std::size_t count,
                                    std::vector<nb::object>& kept) {
  kept.push_back(spans.buffers);
  expect_length("starts", spans.size(), count);
  return resolve(spans);
}

std::vector<std::string_view> split_names(std::string_view joined, std::size_t count) {
  std::vector<std::string_view> names;
  names.reserve(count);
  for (bool is_more = count > 0; is_more;) {
    const std::size_t end = joined.find('\0');
    names.push_back(joined.substr(0, end));
    is_more = end != std::string_view::npos;
    if (is_more) joined.remove_prefix(end + 1);
  }
  expect_length("names", names.size(), count);
  return names;
}

void tar_members(const nb::bytes& names, const nb::sequence& contents, const Int64s& places,
                 const Array<std::uint8_t, 1>& out) {
  const std::size_t width = nb::len(contents);
  if (width == 0 || places.size() % width != 0) {
    throw nb::value_error("places has no whole number of samples");
  }
  const std::size_t count = places.size() / width;
  std::vector<nb::object> kept;  // what the spans point into, whatever happens to `contents`
  std::vector<TarMember> members(places.size());
  const auto split = split_names({names.c_str(), names.size()}, members.size());
  for (std::size_t column = 0; column < width; ++column) {
    const auto [first, second] = nb::cast<std::pair<Spans, Spans>>(contents[column]);
    const auto prefixes = read_spans(first, count, kept);
    const auto values = read_spans(second, count, kept);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t at = i * width + column;
      members[at] = {split[at], prefixes[i], values[i]};
    }
  }
  for (std::size_t i = 0; i < members.size(); ++i) {
    const std::size_t bytes = members[i].prefix.size() + members[i].value.size();
    if (!fits_ustar(members[i]) ||
        !fits(places.data()[i], static_cast<std::int64_t>(tar_member_bytes(bytes)), out.size())) {
      throw nb::value_error(("member " + std::to_string(i) +
                             " fits no ustar header or leaves the "
                             "buffer")
                                .c_str());
    }
  }
  const WithoutGil released;
  for (std::size_t i = 0; i < members.size(); ++i) {
    write_tar_member(members[i], out.data() + places.data()[i]);
  }
}

}  // namespace

void bind_tar_members(nb::module_& m) {
  m.def("tar_members", &tar_members, "names"_a, "contents"_a, "places"_a.noconvert(),
        "out"_a.noconvert(),
        nb::sig("def tar_members(names: bytes, contents: Sequence[tuple[Spans, Spans]], "
                "places: NDArray[np.int64], out: NDArray[np.uint8]) -> None"),
        "Write ustar members, header and padding included, to their places in ``out``: of each\n"
        "sample one for each of ``contents``, the spans of what stands before the value and those\n"
        "of the value. ``names`` are joined by NUL. ValueError where one fits no ustar header.");
}

}  // namespace fastio::python
