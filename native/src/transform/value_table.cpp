#include "transform/value_table.h"

#include <utility>

namespace fastio {
namespace {

/// `Value` is an unsigned integer as large as what the tables hold, whatever that is.
template <typename Value>
class ValueTableTask final : public Task {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "fastio.value_table"; }

  explicit ValueTableTask(const ValueTableWork& work) noexcept : work_(work) {}

  void run(Worker&, std::size_t first, std::size_t last) noexcept override {
    for (std::size_t i = first; i < last; ++i) {
      const std::uint8_t* picture = work_.pictures + i * work_.picture_bytes;
      Value* out = static_cast<Value*>(work_.out) + i * work_.picture_bytes;
      if (work_.planar) {
        planes(picture, out);
      } else {
        pixels(picture, out);
      }
    }
  }

 private:
  [[nodiscard]] const Value* table(std::size_t channel) const noexcept {
    return static_cast<const Value*>(work_.tables) + 256 * channel;
  }

  void planes(const std::uint8_t* in, Value* out) const noexcept {
    const std::size_t plane = work_.picture_bytes / work_.channels;
    for (std::size_t channel = 0; channel < work_.channels; ++channel) {
      const Value* const values = table(channel);
      for (std::size_t i = 0; i < plane; ++i) *out++ = values[*in++];
    }
  }

  void pixels(const std::uint8_t* in, Value* out) const noexcept {
    if (work_.channels == 3) {
      const Value* const red = table(0);
      const Value* const green = table(1);
      const Value* const blue = table(2);
      const std::uint8_t* const stop = in + work_.picture_bytes;
      for (; in != stop; in += 3, out += 3) {
        out[0] = red[in[0]];
        out[1] = green[in[1]];
        out[2] = blue[in[2]];
      }
      return;
    }
    for (std::size_t i = 0; i < work_.picture_bytes; i += work_.channels) {
      for (std::size_t channel = 0; channel < work_.channels; ++channel) {
        *out++ = table(channel)[*in++];
      }
    }
  }

  const ValueTableWork work_;
};

}  // namespace

std::unique_ptr<Task> value_table_task(const ValueTableWork& work) noexcept {
  if (work.value_bytes == 2) return std::make_unique<ValueTableTask<std::uint16_t>>(work);
  return std::make_unique<ValueTableTask<std::uint32_t>>(work);
}

}  // namespace fastio
