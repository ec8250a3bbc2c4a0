// Recognises the kind of a recorded file by its content, never by its name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace tracestep {

enum class RecordedKind : std::uint8_t { kTrace, kSnapshot };

// The kind of the file. Throws Error{kInput} if it is no recording, with what it seems to be.
RecordedKind recorded_kind(const std::filesystem::path& path);

// True if the file begins like a recording and not like a result of this program; false if it
// cannot be read.
bool is_recording(const std::filesystem::path& path);

// The file itself, or the traces in a folder, sorted by name. Throws Error{kInput} for a folder
// without traces.
std::vector<std::filesystem::path> recorded_files(const std::filesystem::path& path);

}  // namespace tracestep
