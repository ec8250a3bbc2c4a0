// The choices of `--tune`: the library's fastest algorithm for each matrix product, by device,
// library version and problem, in a JSON file that is rewritten atomically.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace tracestep::cuda {

using AlgorithmBits = std::array<std::uint64_t, 8>;  // The bits of a cublasLtMatmulAlgo_t.

class TuningFile {
 public:
  // Reads `path` if the file exists; an empty path keeps choices in memory only. Choices of other
  // devices and libraries are not used, but stay in the file. Throws Error{kInput}.
  TuningFile(std::string path, const std::string& device, const std::string& library);

  std::optional<AlgorithmBits> find(const std::string& problem) const;
  // Stores a problem's algorithm; throws Error{kOutput} when the file cannot be written.
  void add(const std::string& problem, const AlgorithmBits& algorithm, double microseconds);

 private:
  struct Choice {
    AlgorithmBits algorithm;
    double microseconds;
  };
  void read();
  void write() const;

  // The file's path, and the device and library of new choices: "NVIDIA H200; cuBLASLt 13.0.2".
  const std::string path_, owner_;
  std::map<std::pair<std::string, std::string>, Choice> choices_;  // Choices by owner and problem.
};

}  // namespace tracestep::cuda
