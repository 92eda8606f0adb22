/// WebP into pixels by libwebp, where the build has it.
#pragma once

namespace fastio {

/// The version of libwebp, as in "1.2.4"; nullptr in a build without it.
[[nodiscard]] const char* webp_version() noexcept;

}  // namespace fastio
