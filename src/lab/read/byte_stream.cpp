// zlib reads plain files as they are, and gzip of several members, as parallel compressors write
// it, as one text.
#include "lab/read/byte_stream.h"

#include <algorithm>

#include "base/error.h"
#include "base/input_file.h"

namespace tracestep {

ByteStream::ByteStream(const std::filesystem::path& path) : name_(path.filename().string()) {
  const InputFile checked(path, name_);  // which waits for no pipe
  file_.reset(gzopen(path.c_str(), "rb"));
  if (!file_) fail_input(name_, "the file cannot be opened");
  gzbuffer(file_.get(), 1 << 16);
}

std::size_t ByteStream::read(std::span<char> out) {
  const int count = gzread(file_.get(), out.data(), static_cast<unsigned>(out.size()));
  int status = Z_OK;
  const char* const reason = gzerror(file_.get(), &status);
  is_cut_ |= status == Z_BUF_ERROR;
  if (status == Z_ERRNO) fail_input(name_, "the file cannot be read: {}", reason);
  if (count < 0 && !is_cut_) fail_input(name_, "damaged gzip data: {}", reason);
  return static_cast<std::size_t>(std::max(count, 0));
}

}  // namespace tracestep
