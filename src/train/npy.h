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

// `file` is the whole file, `name` what messages call it. Errors: kInput for anything but a plain
// header: descr a string (no records), fortran_order, shape, nothing else.
NpyHeader parse_npy_header(std::span<const std::byte> file, const std::string& name);

}  // namespace tracestep
