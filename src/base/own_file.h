// Recognises files that this program wrote by their content: every output contains a mark in a
// place that its format allows and other readers ignore.
#pragma once

#include <string>
#include <string_view>

namespace tracestep {

// True if the open file has the mark of one of the program's outputs, or is empty.
bool is_own_or_empty(int descriptor);
// True if the mark of an output is in `head`, a file's first 4096 bytes, or in `tail`, its end.
bool is_own(std::string_view head, std::string_view tail);

// The marks in formats that have a fixed place for a mark; is_own() finds them.
inline constexpr std::string_view kTraceMark = "tracestep.trace/1";
inline constexpr std::string_view kPictureMark = "tracestep.picture/1";
inline constexpr std::string_view kSnapshotSchema = "tracestep.snapshot/1";
inline constexpr std::string_view kTokenizerMark = "tracestep.tokenizer/1";
inline constexpr std::string_view kGeneratorName = "tracestep";

}  // namespace tracestep
