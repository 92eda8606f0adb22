// How fast libjpeg-turbo itself decodes: the files named on standard input, one thread, no Python.
// Usage: bare_jpeg SECONDS < list-of-files; prints {"samples": n, "cpu_s": t} on one line.

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

// clang-format off
#include <jpeglib.h>  // needs cstdio before it
// clang-format on

namespace {

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

void decode(jpeg_decompress_struct& info, const std::string& data,
            std::vector<unsigned char>& out) {
  jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(data.data()), data.size());
  jpeg_read_header(&info, TRUE);
  info.out_color_space = JCS_RGB;
  info.dct_method = JDCT_ISLOW;
  jpeg_start_decompress(&info);
  const std::size_t stride = static_cast<std::size_t>(info.output_width) * 3;
  if (out.size() < stride * info.output_height) {
    out.resize(stride * info.output_height);
  }
  while (info.output_scanline < info.output_height) {
    JSAMPROW row = out.data() + stride * info.output_scanline;
    jpeg_read_scanlines(&info, &row, 1);
  }
  jpeg_finish_decompress(&info);
}

}  // namespace

int main(int count, char** arguments) {
  const double limit = count > 1 ? std::atof(arguments[1]) : 2.0;
  std::vector<std::string> files;
  for (std::string name; std::getline(std::cin, name);) {
    std::ifstream file(name, std::ios::binary);
    files.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  if (files.empty()) {
    std::fputs("bare_jpeg: no files named on standard input\n", stderr);
    return 2;
  }
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&info);
  std::vector<unsigned char> out;
  for (const std::string& data : files) {
    decode(info, data, out);
  }
  long samples = 0;
  const double start = cpu_seconds();
  while (cpu_seconds() - start < limit) {
    for (const std::string& data : files) {
      decode(info, data, out);
    }
    samples += static_cast<long>(files.size());
  }
  std::printf("{\"samples\": %ld, \"cpu_s\": %.6f}\n", samples, cpu_seconds() - start);
  jpeg_destroy_decompress(&info);
  return 0;
}
