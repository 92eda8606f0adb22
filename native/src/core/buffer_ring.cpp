#include "core/buffer_ring.h"

#include <cstdlib>
#include <limits>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace fastio {

struct BufferRing::State {
  struct Free {
    std::uint8_t* data;
    std::size_t capacity;
  };

  explicit State(std::size_t keep_buffers) : keep(keep_buffers) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    for (const Free& buffer : free) std::free(buffer.data);
  }

  const std::size_t keep;
  std::mutex mutex;
  std::vector<Free> free;  // oldest first
  std::size_t allocated = 0;
};

BufferRing::Lease::Lease(std::shared_ptr<State> state, std::uint8_t* data,
                         std::size_t capacity) noexcept
    : state_(std::move(state)), data_(data), capacity_(capacity) {}

BufferRing::Lease::~Lease() {
  std::uint8_t* surplus = data_;
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->keep > 0) {
      state_->free.push_back({data_, capacity_});
      surplus = nullptr;
      if (state_->free.size() > state_->keep) {  // the oldest goes: sizes may have changed
        surplus = state_->free.front().data;
        state_->allocated -= state_->free.front().capacity;
        state_->free.erase(state_->free.begin());
      }
    } else {
      state_->allocated -= capacity_;
    }
  }
  std::free(surplus);
}

BufferRing::BufferRing(std::size_t keep) noexcept : state_(std::make_shared<State>(keep)) {}

std::unique_ptr<BufferRing::Lease> BufferRing::acquire(std::size_t size) noexcept {
  if (size > std::numeric_limits<std::size_t>::max() / 4) return nullptr;
  const std::size_t capacity = (size / alignment + 1) * alignment;
  {
    const std::lock_guard lock(state_->mutex);
    auto& free = state_->free;
    for (auto buffer = free.rbegin(); buffer != free.rend(); ++buffer) {
      if (buffer->capacity < capacity || buffer->capacity / 2 > capacity) continue;
      const State::Free found = *buffer;
      free.erase(std::next(buffer).base());
      return std::make_unique<Lease>(state_, found.data, found.capacity);
    }
  }
  auto* data = static_cast<std::uint8_t*>(std::aligned_alloc(alignment, capacity));
  if (data == nullptr) return nullptr;
  {
    const std::lock_guard lock(state_->mutex);
    state_->allocated += capacity;
  }
  return std::make_unique<Lease>(state_, data, capacity);
}

std::size_t BufferRing::allocated_bytes() const noexcept {
  const std::lock_guard lock(state_->mutex);
  return state_->allocated;
}

}  // namespace fastio
