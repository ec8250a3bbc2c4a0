// Tells what a file is that somebody brings, by its content and never by its name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace tracestep {

enum class RecordedKind : std::uint8_t { kTrace, kSnapshot };

// Errors: kInput for a file that is neither, saying what it seems to be.
RecordedKind recorded_kind(const std::filesystem::path& path);

// The file begins as a recording does, and not as a result of this program; false for one that
// cannot be read.
bool is_recording(const std::filesystem::path& path);

// The file, or the traces of a folder, by name. Errors: kInput for a folder without any.
std::vector<std::filesystem::path> recorded_files(const std::filesystem::path& path);

}  // namespace tracestep
