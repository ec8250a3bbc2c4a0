// The choices of `--tune`: which algorithm of the library is fastest for a matrix product, by
// device, library version and problem. JSON, rewritten whole and atomically.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace tracestep::cuda {

using AlgorithmBits = std::array<std::uint64_t, 8>;  // cublasLtMatmulAlgo_t as it is

class TuningFile {
 public:
  // Reads `path` when it is there; an empty path keeps choices in memory only. Only choices of
  // this device and library are used; others stay in the file. Throws Error{kInput}.
  TuningFile(std::string path, const std::string& device, const std::string& library);

  std::optional<AlgorithmBits> find(const std::string& problem) const;
  // Throws Error{kOutput} when the file cannot be written.
  void add(const std::string& problem, const AlgorithmBits& algorithm, double microseconds);

 private:
  struct Choice {
    AlgorithmBits algorithm;
    double microseconds;
  };
  void read();
  void write() const;

  const std::string path_, owner_;                                 // "NVIDIA H200; cuBLASLt 13.0.2"
  std::map<std::pair<std::string, std::string>, Choice> choices_;  // by owner and problem
};

}  // namespace tracestep::cuda
