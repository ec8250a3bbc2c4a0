// Files that this program wrote, told from those of others by what they hold: every output has a
// mark that its format allows and other readers pass over.
#pragma once

#include <string>
#include <string_view>

namespace tracestep {

// True if the open file has the mark of one of the program's outputs, or is empty.
bool is_own_or_empty(int descriptor);
// True if a file that begins with `head` (4096 bytes count) and ends with `tail` has such a mark.
bool is_own(std::string_view head, std::string_view tail);

// Marks of formats that have a place for one; is_own() knows them.
inline constexpr std::string_view kTraceMark = "tracestep.trace/1";
inline constexpr std::string_view kPictureMark = "tracestep.picture/1";
inline constexpr std::string_view kSnapshotSchema = "tracestep.snapshot/1";
inline constexpr std::string_view kTokenizerMark = "tracestep.tokenizer/1";
inline constexpr std::string_view kGeneratorName = "tracestep";

}  // namespace tracestep
