#include "weights/weight_files.h"

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "base/utf8.h"

namespace tracestep {
namespace {

using namespace std::literals;

constexpr ForeignFile kTorch{
    "a PyTorch archive",
    "load it with torch.load and save its tensors with safetensors.torch.save_file"};

struct Magic {
  std::string_view bytes;
  ForeignFile file;
};

constexpr Magic kMagics[] = {
    {"GGUF"sv, {"a GGUF file of llama.cpp", "give the safetensors file that it was made from"}},
    {"\x1f\x8b"sv, {"compressed by gzip", "unpack it"}},
    {"\x93NUMPY"sv, {"a NumPy array", "token files go to " TRACESTEP_OPTION(tokens)}},
    {"version https://git-lfs"sv, {"a pointer of Git LFS", "fetch the file itself: git lfs pull"}},
};

// The kind of a zip archive, by the name of its first member, which its first header holds.
ForeignFile zip_file(std::string_view start) {
  constexpr std::size_t kNameSizeAt = 26, kNameAt = 30;
  if (start.size() < kNameAt) return {"a zip archive", {}};
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(start[at]); };
  const std::size_t size = byte(kNameSizeAt) + 256u * byte(kNameSizeAt + 1);
  const std::string_view name = start.substr(kNameAt, size);
  if (name.ends_with("data.pkl")) return kTorch;
  if (name.ends_with(".npy")) return {"an archive of NumPy arrays", {}};
  return {"a zip archive", {}};
}

// True for valid text; a last character that may be cut off does not count.
bool is_text(std::string_view start) {
  if (start.size() == kForeignStart) {
    const auto continues = [&] {
      return (static_cast<unsigned char>(start.back()) & 0xc0) == 0x80;
    };
    for (int i = 0; i < 3 && continues(); ++i) start.remove_suffix(1);
    start.remove_suffix(1);
  }
  const auto is_control = [](char c) {
    return c >= 0 && c < ' ' && "\t\n\v\f\r"sv.find(c) == ""sv.npos;
  };
  return is_utf8(start) && std::ranges::none_of(start, is_control);
}

}  // namespace

ForeignFile foreign_file(std::span<const std::byte> start_bytes) {
  const std::string_view start(reinterpret_cast<const char*>(start_bytes.data()),
                               start_bytes.size());
  if (start.empty()) return {"empty", {}};
  for (const Magic& magic : kMagics) {
    if (start.starts_with(magic.bytes)) return magic.file;
  }
  if (start.starts_with("PK\x03\x04")) return zip_file(start);
  // A pickle of protocol 2 to 5: what torch.save wrote before version 1.6.
  if (start.size() > 1 && start[0] == '\x80' && start[1] >= 2 && start[1] <= 5) return kTorch;
  if (!is_text(start)) return {};
  const std::size_t first = start.find_first_not_of(" \t\r\n");
  const bool is_json = first != start.npos && (start[first] == '{' || start[first] == '[');
  return is_json ? ForeignFile{"JSON", {}} : ForeignFile{"text", {}};
}

}  // namespace tracestep
