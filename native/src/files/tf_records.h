/// TFRecord files: where records lie, and where the features of their tf.train.Examples do.
///
/// A record is a size (uint64), a checksum of it (4 bytes), so many bytes, a checksum of these; all
/// little endian. An Example is a message of Protocol Buffers:
///
///     Example { Features features = 1; }        Features { map<string, Feature> feature = 1; }
///     Feature { oneof { BytesList = 1; FloatList = 2; Int64List = 3; } }
///     each list { repeated value = 1; }         floats and integers packed, or one by one
///
/// A message is a sequence of tag (number << 3 | type) and value: 0 a varint, 1 eight bytes, 2 a
/// size and so many bytes, 5 four bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/bytes.h"

namespace fastio {

/// A run of bytes.
struct Run {
  std::int64_t start;
  std::int64_t size;
};

/// Where the bytes of the records lie that are whole, one behind the other from the beginning of a
/// file on. No checksum is compared.
[[nodiscard]] std::vector<Run> record_places(Bytes file);

/// Why something is no Example; Python has these names, too.
enum class ExampleFault : std::int32_t {
  none = 0,
  endless = 1,   ///< a varint without an end
  outside = 2,   ///< a field leads out of its message
  type = 3,      ///< a field of an unknown type
  sequence = 4,  ///< a tf.train.SequenceExample
};

/// A feature of an example: its `count` parts follow those of the features before. Without parts it
/// has no values.
struct FoundFeature {
  std::int64_t name;  ///< a number of one of the names
  std::int64_t kind;  ///< 1 bytes, 2 floats, 3 integers; 0 without parts
  std::int64_t count;
};

/// The features of many examples, in their order.
class ExampleParser {
 public:
  /// Adds the features of one example, and returns what is wrong with it: those added count only if
  /// nothing is. The bytes must stay where they are.
  ExampleFault add(Bytes example);

  /// A part is a value of bytes, or a run of packed numbers, from the beginning of its example on.
  [[nodiscard]] const std::vector<Run>& parts() const noexcept { return parts_; }
  [[nodiscard]] const std::vector<FoundFeature>& features() const noexcept { return features_; }
  /// Each once, in the bytes of an example.
  [[nodiscard]] const std::vector<std::string_view>& names() const noexcept { return names_; }
  /// The type of the last field of an unknown type.
  [[nodiscard]] int bad_type() const noexcept { return bad_type_; }

 private:
  class Message;

  void entry(Message message);
  void feature(Message message, FoundFeature& found);
  void values(Message message, std::int64_t kind);
  std::int64_t number_of(std::string_view name);

  std::vector<Run> parts_;
  std::vector<FoundFeature> features_;
  std::vector<std::string_view> names_;
  std::unordered_map<std::string_view, std::int64_t> numbers_;
  const std::uint8_t* first_ = nullptr;  // of the example
  ExampleFault fault_ = ExampleFault::none;
  int bad_type_ = 0;
};

/// Varints, one behind the other, as the int64 that their lower 64 bits are; false if the last one
/// has no end, or one is longer than ten bytes.
[[nodiscard]] bool read_varints(Bytes bytes, std::vector<std::int64_t>& out);

}  // namespace fastio
