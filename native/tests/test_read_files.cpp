// Files are read whole or not at all; what is no regular file is an error, not a wait.
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "check.h"
#include "files/read_files.h"
#include "pictures/worker.h"

namespace {

using fastio::Status;

struct Result {
  Status status;
  int error;
  std::string data;
};

Result read_one(const std::string& path, std::int64_t size) {
  std::string out(static_cast<std::size_t>(size) + 1, '.');
  std::int32_t status = -1;
  std::int32_t error = -1;
  auto names = std::make_unique<const char*[]>(1);
  names[0] = path.c_str();
  auto places = std::make_unique<fastio::FilePlace[]>(1);
  places[0] = {1, size};
  auto* data = reinterpret_cast<std::uint8_t*>(out.data());
  const auto task =
      fastio::read_files_task("/", {std::move(names), std::move(places), data, &status, &error});
  fastio::Worker worker;
  task->run(worker, 0, 1);
  return {static_cast<Status>(status), error, out};
}

}  // namespace

int main() {
  char folder[] = "/tmp/fastio-test-XXXXXX";
  if (mkdtemp(folder) == nullptr) return 1;
  const std::string file = std::string(folder) + "/file";
  const std::string fifo = std::string(folder) + "/fifo";
  std::ofstream(file) << "hello";
  EXPECT(mkfifo(fifo.c_str(), 0600) == 0);

  const Result good = read_one(file, 5);
  EXPECT(good.status == Status::ok && good.error == 0 && good.data == ".hello");
  EXPECT(read_one(file, 4).status == Status::changed);
  EXPECT(read_one(file, 6).status == Status::changed);
  const Result missing = read_one(file + "x", 5);
  EXPECT(missing.status == Status::io_error && missing.error == ENOENT);
  EXPECT(read_one(fifo, 5).status == Status::io_error);
  EXPECT(read_one(folder, 5).error == EISDIR);

  unlink(file.c_str());
  unlink(fifo.c_str());
  rmdir(folder);
  return failures;
}
