// The battery of random programs: --seed FIRST --count N checks as many programs and prints what
// they contained; for a program with a fault it prints the seed, the fault and the smallest part
// that still has one. The last line is a summary in JSON. Status 1 when there was a fault.
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>

#include "backends/random_checks.h"
#include "ir/print.h"
#include "support/shrink.h"

namespace tracestep::testing {
namespace {

void report(RandomChecks& checks, std::uint64_t seed, const RandomCase& random,
            const std::string& fault) {
  // Another fault than this one is not followed: a program without a loss has one of its own.
  const auto kind_of = [](const std::string& text) { return text.substr(0, text.find(':')); };
  const RandomCase small = shrunk(random, [&](const RandomCase& smaller) {
    return kind_of(checks.fault_in(smaller)) == kind_of(fault);
  });
  fmt::print("fault in run {0} (again: --seed {0} --count 1): {1}\n{2}\n{3}", seed, fault,
             random.wishes(), print(small.program));
  fmt::print("which has: {}\n", checks.fault_in(small));
  std::fflush(stdout);
}

int run(std::uint64_t first, std::uint64_t count) {
  const auto start = std::chrono::steady_clock::now();
  RandomChecks checks;
  std::int64_t faults = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const RandomCase random = random_case(seed);
    const std::string fault = checks.fault_in(random);
    if (fault.empty()) continue;
    ++faults;
    RandomChecks fresh;
    report(fresh, seed, random, fault);
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  fmt::print("{}\n", checks.shares().text());
  fmt::print(
      "{{\"battery\": \"random_programs\", \"runs\": {}, \"faults\": {}, \"seconds\": {:.1f}}}\n",
      count, faults, seconds.count());
  return faults > 0 ? 1 : 0;
}

std::uint64_t option(int argc, char** argv, const char* name, std::uint64_t otherwise) {
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], name) == 0) return std::strtoull(argv[i + 1], nullptr, 10);
  }
  return otherwise;
}

}  // namespace
}  // namespace tracestep::testing

int main(int argc, char** argv) {
  using tracestep::testing::option;
  return tracestep::testing::run(option(argc, argv, "--seed", 1),
                                 option(argc, argv, "--count", 100));
}
