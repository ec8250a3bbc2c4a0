// The safetensors format: a length, a JSON header, the bytes of all tensors. Reading checks the
// whole header first and then reads one tensor at a time; writing is all or nothing. Source: the
// format's public description and its reference reader.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/directory.h"
#include "base/host_tensor.h"
#include "base/input_file.h"
#include "base/output_file.h"
#include "ir/program.h"

namespace tracestep {

using TensorMap = std::map<std::string, TensorView>;

class SafetensorsFile {
 public:
  struct Entry {
    std::string name;
    // The dtype as the format names it, "F32"; it may be one that cannot be read here.
    std::string_view dtype;
    std::vector<std::int64_t> shape;
    std::uint64_t begin = 0, end = 0;  // The range of its bytes, from the start of the data.
  };

  // Reads the header. Errors: kInput naming the file and the tensor when the file is not a regular
  // file or breaks any rule of the format.
  explicit SafetensorsFile(const std::filesystem::path& path);
  explicit SafetensorsFile(InputFile file);

  // Entries in the order of their bytes in the file.
  const std::vector<Entry>& entries() const { return entries_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::filesystem::path& path() const { return file_.path(); }
  // Names in the order of their bytes in the file.
  std::vector<std::string> names() const;
  // The entry of a tensor; nullptr if the file does not have it.
  const Entry* find(std::string_view name) const;

  // The tensor's type, without reading its bytes. Errors: kInput when it is missing or has a dtype
  // or rank that HostTensor cannot hold.
  Type type(std::string_view name) const;
  // Reads the tensor. Errors: as type(); also when the file was truncated after it was opened.
  HostTensor read(std::string_view name) const;
  // Fills `out` with the tensor's bytes from `offset` on. The range must lie within the tensor.
  void read_part(const Entry& entry, std::uint64_t offset, std::span<std::byte> out) const {
    file_.read(data_start_ + entry.begin + offset, out);
  }

 private:
  InputFile file_;
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> by_name_;  // Indices into entries_, sorted by name.
  std::map<std::string, std::string> metadata_;
  std::uint64_t data_start_ = 0;
};

using TensorTypes = std::map<std::string, Type>;

// The names in the order in which files store them: the largest element type first, then by name.
std::vector<std::string> order_in_file(const TensorTypes& types);

// Writes a file tensor by tensor, so that only one need be in memory. The header is padded to 8
// bytes. The file appears with commit().
class SafetensorsOutput {
 public:
  using Metadata = std::map<std::string, std::string>;

  // Begins a file. `metadata` is added to {"format": "pt"}, which other readers require, and the
  // mark of our files. Errors (all members): kUsage for a name that the format cannot hold, kOutput
  // as OutputFile.
  SafetensorsOutput(const std::filesystem::path& path, const TensorTypes& types,
                    const Metadata& metadata = {});
  SafetensorsOutput(const Directory& folder, const std::string& name, const TensorTypes& types);

  // The order in which add() takes the tensors: order_in_file().
  const std::vector<std::string>& order() const { return order_; }
  void add(const TensorView& tensor);
  // Makes the file appear. Must be called when all tensors are added.
  void commit();

 private:
  void write_header(const TensorTypes& types, const Metadata& metadata);

  std::vector<std::string> order_;
  std::vector<std::int64_t> bytes_;  // The bytes of each tensor, in that order.
  std::size_t added_ = 0;
  OutputFile file_;
};

// Writes tensors that are all in memory.
void write_safetensors(const std::filesystem::path& path, const TensorMap& tensors,
                       const SafetensorsOutput::Metadata& metadata = {});

}  // namespace tracestep
