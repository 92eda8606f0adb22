// libFuzzer target: the records of a TFRecord file and their examples, in hostile bytes.
#include <cstdlib>

#include "files/tf_records.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fastio::Bytes input(data, size);
  for (const auto& [start, length] : fastio::record_places(input)) {
    const auto first = static_cast<std::size_t>(start);
    if (first + static_cast<std::size_t>(length) > size) std::abort();
  }
  fastio::ExampleParser parser;
  (void)parser.add(input);
  std::vector<std::int64_t> numbers;
  for (const auto& [start, length] : parser.parts()) {
    const auto first = static_cast<std::size_t>(start), bytes = static_cast<std::size_t>(length);
    if (start < 0 || length < 0 || first > size || bytes > size - first) std::abort();
    (void)fastio::read_varints(input.subspan(first, bytes), numbers);
  }
  return 0;
}
