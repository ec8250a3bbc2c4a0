// The safetensors format: a length, a JSON header, the bytes of all tensors. Reading checks the
// whole header first and then reads one tensor at a time; writing is all or nothing. Source: the
// format's public description and its reference reader.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/directory.h"
#include "base/host_tensor.h"
#include "base/input_file.h"
#include "ir/program.h"

namespace tracestep {

using TensorMap = std::map<std::string, TensorView>;

class SafetensorsFile {
 public:
  struct Entry {
    std::string name;
    std::string_view dtype;  // the format's name: "F32"; may be a type that cannot be read here
    std::vector<std::int64_t> shape;
    std::uint64_t begin = 0, end = 0;  // bytes, from the start of the data
  };

  // Errors: kInput naming the file and the tensor when the file is not a regular file or breaks
  // any rule of the format.
  explicit SafetensorsFile(const std::filesystem::path& path);
  explicit SafetensorsFile(InputFile file);

  // In the order of their bytes in the file.
  const std::vector<Entry>& entries() const { return entries_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::filesystem::path& path() const { return file_.path(); }
  // nullptr when the file has no tensor of this name.
  const Entry* find(std::string_view name) const;

  // The tensor's type, without reading its bytes. Errors: kInput when it is missing or has a dtype
  // or rank that HostTensor cannot hold.
  Type type(std::string_view name) const;
  // Errors: as type(); also when the file was truncated after it was opened.
  HostTensor read(std::string_view name) const;

 private:
  InputFile file_;
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> by_name_;  // indices into entries_
  std::map<std::string, std::string> metadata_;
  std::uint64_t data_start_ = 0;
};

// Writes `tensors`, largest element type first and then by name, with the header padded to 8 bytes.
// `metadata` is added to {"format": "pt"}, which other readers require. Errors: kUsage for a name
// that the format cannot hold, kOutput as OutputFile.
void write_safetensors(const std::filesystem::path& path, const TensorMap& tensors,
                       const std::map<std::string, std::string>& metadata = {});
void write_safetensors(const Directory& folder, const std::string& name, const TensorMap& tensors);

}  // namespace tracestep
