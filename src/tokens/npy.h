// The header of NumPy's .npy files, versions 1 to 3.
// Source: NumPy's format description (numpy.lib.format).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tracestep {

struct NpyHeader {
  std::string descr;  // "<u2"
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
  std::size_t data_start = 0;
};

bool is_npy(std::span<const std::byte> file);

// The largest header that is accepted; NumPy's are smaller for arrays without named fields.
inline constexpr std::size_t kMaxNpyHeaderBytes = std::size_t{1} << 16;

// Reads the header in `start`, the whole file or its first kMaxNpyHeaderBytes; `name`: the file's,
// for messages. Errors: kInput unless the header lies within these bytes and has exactly descr (a
// string, no records), fortran_order and shape (at most 64 dimensions).
NpyHeader parse_npy_header(std::span<const std::byte> start, const std::string& name);

}  // namespace tracestep
