// JPEGs for tests: encoded by libjpeg-turbo from a recipe.
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

// clang-format off
#include <jpeglib.h>  // needs cstdio before it
// clang-format on

using File = std::vector<std::uint8_t>;

enum class Content { noise, saturated, smooth, black, last };

struct Recipe {
  int width;
  int height;
  int components;
  int h;  ///< sampling factors of the first component
  int v;
  int quality;
  unsigned restart_interval;
  bool optimised;
  Content content;
};

inline std::uint8_t sample(Content content, int x, int y, std::mt19937& random) {
  switch (content) {
    case Content::noise: return static_cast<std::uint8_t>(random());
    case Content::saturated: return random() % 2 == 0 ? 0 : 255;
    case Content::smooth: return static_cast<std::uint8_t>(5 * x + 3 * y);
    default: return 0;
  }
}

inline File encode(const Recipe& recipe, std::mt19937& random) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &memory, &size);
  info.image_width = static_cast<JDIMENSION>(recipe.width);
  info.image_height = static_cast<JDIMENSION>(recipe.height);
  info.input_components = recipe.components;
  info.in_color_space = recipe.components == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, recipe.quality, TRUE);
  info.comp_info[0].h_samp_factor = recipe.h;
  info.comp_info[0].v_samp_factor = recipe.v;
  info.restart_interval = recipe.restart_interval;
  info.optimize_coding = recipe.optimised ? TRUE : FALSE;
  jpeg_start_compress(&info, TRUE);
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(recipe.width * recipe.components));
  for (int y = 0; y < recipe.height; ++y) {
    int x = 0;
    for (auto& pixel : pixels) pixel = sample(recipe.content, x++, y, random);
    JSAMPROW row = pixels.data();
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  File file(memory, memory + size);
  jpeg_destroy_compress(&info);
  std::free(memory);
  return file;
}

inline Recipe random_recipe(std::mt19937& random) {
  constexpr std::array<std::array<int, 2>, 6> samplings{
      {{1, 1}, {2, 1}, {1, 2}, {2, 2}, {4, 1}, {1, 4}}};
  const auto below = [&random](unsigned limit) { return static_cast<int>(random() % limit); };
  const int components = below(5) == 0 ? 1 : 3;
  const auto& sampling = samplings[random() % samplings.size()];
  return {.width = 1 + below(70),
          .height = 1 + below(70),
          .components = components,
          .h = sampling[0],
          .v = sampling[1],
          .quality = 1 + below(100),
          .restart_interval = below(2) == 0 ? 0U : static_cast<unsigned>(1 + below(9)),
          .optimised = below(2) == 0,
          .content = static_cast<Content>(below(static_cast<unsigned>(Content::last)))};
}
