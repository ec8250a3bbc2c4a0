#include "support/report_page.h"

#include <array>
#include <cstdint>

#include "lab/report/gzip.h"

namespace tracestep::testing {
namespace {

// Of RFC 4648, with line ends between its digits.
std::string bytes_of_base64(std::string_view text) {
  std::array<int, 256> values{};
  values.fill(-1);
  int next = 0;
  for (const auto& [first, last] : {std::pair('A', 'Z'), {'a', 'z'}, {'0', '9'}}) {
    for (int c = first; c <= last; ++c) values[static_cast<std::size_t>(c)] = next++;
  }
  values['+'] = 62;
  values['/'] = 63;
  std::string out;
  std::uint32_t bits = 0;
  int count = 0;
  for (unsigned char c : text) {
    if (values[c] < 0) continue;
    bits = bits << 6 | static_cast<std::uint32_t>(values[c]);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out += static_cast<char>(bits >> count & 255u);
  }
  return out;
}

}  // namespace

std::string json_of_page(std::string_view page) {
  constexpr std::string_view kOpens = " id=\"report\">";
  const std::size_t begin = page.find(kOpens);
  if (begin == std::string_view::npos) return {};
  const std::string_view packed = page.substr(begin + kOpens.size());
  return gunzip(bytes_of_base64(packed.substr(0, packed.find('<'))));
}

}  // namespace tracestep::testing
