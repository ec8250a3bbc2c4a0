// zlib's streaming inflate over the parts of a file. Files of several gzip members, as parallel
// compressors write them, are one text.
#include "lab/read/byte_stream.h"

#include <algorithm>

#include <zlib.h>

#include "base/error.h"

namespace tracestep {
namespace {

constexpr std::size_t kRawPart = std::size_t{1} << 18;
constexpr std::size_t kKindBytes = 16;
constexpr int kGzipOnly = 15 + 16;  // the largest window, a gzip header

bool is_gzip(std::span<const unsigned char> head) {
  return head.size() > 2 && head[0] == 0x1f && head[1] == 0x8b;
}

}  // namespace

struct ByteStream::Inflater {
  z_stream stream{};
  std::vector<char> raw = std::vector<char>(kRawPart);
  bool is_between = false;  // behind a member's end

  Inflater() { TRACESTEP_CHECK(inflateInit2(&stream, kGzipOnly) == Z_OK); }
  ~Inflater() { inflateEnd(&stream); }
};

std::vector<unsigned char> first_bytes(const std::filesystem::path& path) {
  const InputFile file(path, path.filename().string());
  std::vector<unsigned char> out(std::min<std::uint64_t>(file.size(), kKindBytes));
  file.read(0, std::as_writable_bytes(std::span(out)));
  return out;
}

ByteStream::ByteStream(const std::filesystem::path& path) : file_(path, path.filename().string()) {
  if (is_gzip(first_bytes(path))) inflater_ = std::make_unique<Inflater>();
}

ByteStream::~ByteStream() = default;

std::size_t ByteStream::read(std::span<char> out) {
  return inflater_ ? read_inflated(out) : read_raw(out);
}

std::size_t ByteStream::read_raw(std::span<char> out) {
  const std::size_t count = std::min<std::uint64_t>(out.size(), file_.size() - at_);
  file_.read(at_, std::as_writable_bytes(out.first(count)));
  at_ += count;
  return count;
}

std::size_t ByteStream::read_inflated(std::span<char> out) {
  z_stream& z = inflater_->stream;
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  while (z.avail_out > 0) {
    if (z.avail_in == 0) {
      z.avail_in = static_cast<uInt>(read_raw(inflater_->raw));
      z.next_in = reinterpret_cast<Bytef*>(inflater_->raw.data());
      if (z.avail_in == 0) {
        is_cut_ = !inflater_->is_between;
        break;
      }
    }
    if (inflater_->is_between) {
      if (*z.next_in != 0x1f) break;  // padding behind the last member
      inflateReset(&z);
    }
    const int status = inflate(&z, Z_NO_FLUSH);
    inflater_->is_between = status == Z_STREAM_END;
    if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR) {
      fail_input(path().filename().string(), "damaged gzip data: {}", z.msg ? z.msg : "no reason");
    }
  }
  return out.size() - z.avail_out;
}

}  // namespace tracestep
