/// Highway, for the one instruction set that the file which includes this is compiled for. Which
/// files run is decided by `simd_level`, not by Highway's own dispatch: nothing of it is linked.
#pragma once

#define HWY_COMPILE_ONLY_STATIC
// What no routine needs is not asked of the processor.
#define HWY_DISABLE_PCLMUL_AES
#define HWY_DISABLE_BMI2_FMA
#define HWY_DISABLE_F16C
#include <hwy/highway.h>

#if HWY_MAJOR < 1
#error "needs Highway 1.0 or later (Debian's libhwy-dev)"
#endif
