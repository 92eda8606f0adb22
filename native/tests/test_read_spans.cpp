// Spans by pread: each in its place, near or far, twice or beyond the end.
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "check.h"
#include "core/thread_pool.h"
#include "files/readahead.h"
#include "pictures/worker.h"

namespace {

using fastio::SpanRead;

std::uint8_t byte_at(std::int64_t place) {
  return static_cast<std::uint8_t>(place * 7 + place / 256);
}

int make_file(std::int64_t size) {
  char name[] = "/tmp/fastio-read-spans-XXXXXX";
  const int fd = mkstemp(name);
  unlink(name);
  std::vector<std::uint8_t> data(static_cast<std::size_t>(size));
  for (std::int64_t i = 0; i < size; ++i) data[static_cast<std::size_t>(i)] = byte_at(i);
  EXPECT(write(fd, data.data(), data.size()) == size);
  return fd;
}

struct Span {
  int fd;
  std::int64_t start;
  std::size_t size;
};

/// Reads them and compares each with `byte_at`; the errors.
std::vector<std::int32_t> read(const std::vector<Span>& spans) {
  std::size_t total = 0;
  for (const Span& span : spans) total += span.size;
  std::vector<std::uint8_t> out(total, 0xEE);
  std::vector<std::int32_t> error(spans.size(), 12345);
  std::vector<SpanRead> reads;
  std::size_t place = 0;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    reads.push_back({spans[i].fd, spans[i].start, spans[i].size, out.data() + place, &error[i]});
    place += spans[i].size;
  }
  fastio::Worker worker;
  fastio::Job job(fastio::read_spans_task(std::move(reads)), fastio::read_spans_steps, 1);
  job.work(worker);
  EXPECT(job.done());
  place = 0;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    for (std::size_t k = 0; error[i] == 0 && k < spans[i].size; ++k) {
      EXPECT(out[place + k] == byte_at(spans[i].start + static_cast<std::int64_t>(k)));
    }
    place += spans[i].size;
  }
  return error;
}

void test_many(int fd) {
  std::vector<Span> spans;
  for (std::int64_t i = 0; i < 3000; ++i) {
    spans.push_back({fd, i * 7919 % 990'000, static_cast<std::size_t>(i * 31 % 400)});
  }
  for (const std::int32_t error : read(spans)) EXPECT(error == 0);
}

void test_twice_and_overlapping(int fd) {
  EXPECT(read({{fd, 10, 100}, {fd, 10, 100}, {fd, 50, 10}, {fd, 0, 0}}) ==
         std::vector<std::int32_t>(4, 0));
}

void test_beyond_the_end(int fd) {
  EXPECT((read({{fd, 999'990, 20}, {fd, 5, 5}, {fd, 2'000'000, 1}, {fd, 999'980, 10}}) ==
          std::vector<std::int32_t>{-1, 0, -1, 0}));
}

void test_bad_descriptor(int fd) {
  EXPECT((read({{-1, 0, 5}, {fd, 0, 5}}) == std::vector<std::int32_t>{EBADF, 0}));
}

}  // namespace

int main() {
  const int fd = make_file(1'000'000);
  test_many(fd);
  test_twice_and_overlapping(fd);
  test_beyond_the_end(fd);
  test_bad_descriptor(fd);
  EXPECT(read({}).empty());
  close(fd);
  return failures;
}
