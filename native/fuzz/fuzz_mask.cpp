// libFuzzer target: hostile masks. A mask that decodes whole must give the same numbers through a
// plan that takes a part of it.
//
// The first four bytes say which part, the rest is the file.
#include <cstdlib>
#include <memory>

#include "pictures/mask.h"
#include "pictures/worker.h"

namespace {

using fastio::Bytes;
using fastio::Plan;
using fastio::Status;

constexpr std::size_t recipe_bytes = 4;
constexpr std::size_t most_pixels = 1 << 16;

/// Decodes one mask into memory of the exact size; whole without a plan.
Status decode(fastio::Worker& worker, Bytes file, const fastio::NumberRow& row, const Plan* plan) {
  std::int32_t status = -1;
  fastio::MaskBatch batch{
      std::make_unique<Bytes[]>(1), nullptr, nullptr, {row, 1, nullptr, &status}};
  batch.spans[0] = file;
  if (plan != nullptr) {
    batch.plans = std::make_unique<Plan[]>(1);
    batch.plans[0] = *plan;
  }
  fastio::mask_task(std::move(batch))->run(worker, 0, 1);
  return static_cast<Status>(status);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static fastio::Worker worker;  // kept, as a thread of the pool keeps it: state must not leak over
  if (size <= recipe_bytes) return 0;
  const Bytes file(data + recipe_bytes, size - recipe_bytes);
  fastio::MaskForm form{};
  if (fastio::read_mask_form(file, form) != Status::ok) return 0;
  if (form.width > most_pixels || form.height > most_pixels) return 0;
  if (form.width * form.height > most_pixels) return 0;
  const auto whole = std::make_unique<std::uint16_t[]>(form.height * form.width * form.channels);
  const fastio::NumberRow all{reinterpret_cast<std::uint8_t*>(whole.get()),
                              form.height,
                              form.width,
                              form.channels,
                              2,
                              false};
  const Status status = decode(worker, file, all, nullptr);
  const std::size_t x = data[0] % form.width;
  const std::size_t y = data[1] % form.height;
  const std::size_t part_width = 1 + data[2] % (form.width - x);
  const std::size_t part_height = 1 + data[3] % (form.height - y);
  const auto w = static_cast<std::int32_t>(part_width);
  const auto h = static_cast<std::int32_t>(part_height);
  const Plan plan{
      static_cast<std::int32_t>(x), static_cast<std::int32_t>(y), w, h, w, h, 0, 0, w, h, 0, 0, 0};
  const auto part = std::make_unique<std::uint16_t[]>(part_height * part_width * form.channels);
  const fastio::NumberRow row{reinterpret_cast<std::uint8_t*>(part.get()),
                              part_height,
                              part_width,
                              form.channels,
                              2,
                              false};
  const Status part_status = decode(worker, file, row, &plan);
  if (status != Status::ok) return 0;
  if (part_status != Status::ok) std::abort();
  const std::size_t run = part_width * form.channels;
  for (std::size_t line = 0; line < part_height; ++line) {
    const std::uint16_t* from = &whole[((y + line) * form.width + x) * form.channels];
    for (std::size_t i = 0; i < run; ++i) {
      if (part[line * run + i] != from[i]) std::abort();
    }
  }
  return 0;
}
