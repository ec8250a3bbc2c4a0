// Gzip compression of texts.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tracestep {

// Compresses `text`. `comment` stands uncompressed in the gzip header, which readers skip.
std::string gzip(std::string_view text, std::string_view comment = {});
// Undoes gzip(). Throws Error{kInput} for data that is not gzip, and for more than `max_bytes` of
// text, since a small file can expand to a huge text.
std::string gunzip(std::string_view data, std::size_t max_bytes = std::size_t{1} << 30);

}  // namespace tracestep
