// A row of `bench` in which the validity checker finds no fault.
#pragma once

#include <vector>

#include "base/json.h"

namespace tracestep::testing {

Json list(std::vector<double> values);
// Returns nine samples around `center`, a tenth of `step` apart.
std::vector<double> around(double center, double step = 0.01);

// small, B = 4, T = 128, one step. P by hand: 2·10000·768 + 12·(4·768² + 3·768·3072 + 2·768) + 768.
// FLOPs by hand, three passes of: 12 layers of 2·512·(4·768² + 3·768·3072) and 4·512·128·768, and
// the head, 2·512·768·10000.
inline constexpr double kSoundFlops =
    3.0 * (12.0 * (1024.0 * 9437184.0 + 201326592.0) + 7864320000.0);

// A sound row of a CPU, with ten samples around 100 ms.
Json sound();

}  // namespace tracestep::testing
