// Buffers come back from wherever they die, and no more are kept than was said.
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "check.h"
#include "core/buffer_ring.h"

namespace {

using fastio::BufferRing;

void test_memory_is_used_again() {
  BufferRing ring(2);
  auto lease = ring.acquire(1000);
  const std::uint8_t* first = lease->data();
  EXPECT(reinterpret_cast<std::uintptr_t>(first) % BufferRing::alignment == 0);
  lease.reset();
  EXPECT(ring.acquire(1000)->data() == first);
}

void test_kept_memory_is_bounded() {
  BufferRing ring(2);
  {
    std::vector<std::unique_ptr<BufferRing::Lease>> leases;
    for (int i = 0; i < 5; ++i) leases.push_back(ring.acquire(1000));
    EXPECT(ring.allocated_bytes() == 5 * 1024);
  }
  EXPECT(ring.allocated_bytes() == 2 * 1024);
  EXPECT(ring.acquire(100'000) != nullptr);
}

void test_ring_may_die_first() {
  auto ring = std::make_unique<BufferRing>(1);
  auto lease = ring->acquire(10);
  ring.reset();
  lease->data()[9] = 1;
}

void test_threads_share_it() {
  BufferRing ring(3);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&ring, t] {
      for (int i = 0; i < 1000; ++i) {
        const auto lease = ring.acquire(64 * static_cast<std::size_t>(1 + (i + t) % 3));
        lease->data()[0] = static_cast<std::uint8_t>(i);
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace

int main() {
  test_memory_is_used_again();
  test_kept_memory_is_bounded();
  test_ring_may_die_first();
  test_threads_share_it();
  return failures;
}
