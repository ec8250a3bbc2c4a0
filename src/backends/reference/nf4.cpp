// Weights of 4 bits by their definition. The table of magnitudes is made as it was published: parts
// of 0.1 to 1 for each power of ten, sorted.
#include <algorithm>
#include <cmath>
#include <vector>

#include "backends/reference/kernels.h"
#include "backends/reference/tensor_access.h"
#include "ops/nf4_codes.h"

namespace tracestep::reference {
namespace {

std::vector<double> dynamic_table() {
  std::vector<double> out{0.0, 1.0};
  for (int i = 0; i < 7; ++i) {
    const int parts = static_cast<int>(std::pow(2, i));
    for (int part = 0; part < parts; ++part) {
      const double low = 0.1 + 0.9 * part / parts, high = 0.1 + 0.9 * (part + 1) / parts;
      for (const double sign : {1.0, -1.0}) {
        out.push_back(sign * std::pow(10.0, i - 6) * (low + high) / 2);
      }
    }
  }
  std::ranges::sort(out);
  return out;
}

void widen_nf4(const KernelCall& call) {
  const std::vector<double> table = dynamic_table();
  const auto* codes = call.inputs[0].as<const std::uint8_t>();  // contiguous
  const auto* magnitudes = call.inputs[1].as<const std::uint8_t>();
  const auto* scales = call.inputs[2].as<const double>();
  const View<double> offset(call.inputs[3]), w(call.outputs[0]);
  const std::int64_t group = call.attrs.integer("group");
  std::int64_t i = 0;
  for_each_index(call.outputs[0].shape, [&](const Dims& index) {
    const std::int64_t block = i / 64;
    const int pair = codes[i / 2], code = i % 2 == 0 ? pair / 16 : pair % 16;
    const double m = table[magnitudes[block]] * scales[block / group] + offset[Dims{0}];
    w[index] = kNf4Values[code] * m;
    ++i;
  });
}

}  // namespace

void add_nf4(KernelTable& table) {
  table.add("widen_nf4", widen_nf4);
}

}  // namespace tracestep::reference
