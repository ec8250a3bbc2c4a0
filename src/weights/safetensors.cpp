#include "weights/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <numeric>

#include "base/json.h"
#include "base/own_file.h"
#include "base/utf8.h"
#include "weights/safetensors_header.h"
#include "weights/weight_files.h"

namespace tracestep {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

// The dtypes with the format's names; files store tensors by their order here, the last one first.
constexpr std::array<std::pair<DType, std::string_view>, 10> kNames = {{
    {DType::kBool, "BOOL"},
    {DType::kU8, "U8"},
    {DType::kF8E5M2, "F8_E5M2"},
    {DType::kF8E4M3, "F8_E4M3"},
    {DType::kF16, "F16"},
    {DType::kBF16, "BF16"},
    {DType::kI32, "I32"},
    {DType::kF32, "F32"},
    {DType::kF64, "F64"},
    {DType::kI64, "I64"},
}};

std::size_t rank_of(DType dtype) {
  std::size_t i = 0;
  while (kNames[i].first != dtype) ++i;
  return i;
}

std::optional<DType> dtype_of(std::string_view name) {
  for (const auto& [dtype, text] : kNames) {
    if (text == name) return dtype;
  }
  return std::nullopt;
}

void check_text(const std::string& text, const char* what) {
  if (is_utf8(text) && text.find('\0') == std::string::npos) return;
  fail_usage("safetensors", "{} {} is not text without NUL", what, printable(text));
}

Json metadata_json(std::map<std::string, std::string> metadata) {
  metadata["format"] = "pt";
  metadata["generator"] = kGeneratorName;
  Json::Object out;
  for (const auto& [key, value] : metadata) {
    check_text(key, "the metadata key");
    check_text(value, "the metadata value");
    out.emplace_back(key, value);
  }
  return Json(std::move(out));
}

std::string header_of(const std::vector<std::string>& order, const TensorTypes& types,
                      const SafetensorsOutput::Metadata& metadata) {
  Json::Object header;
  header.emplace_back("__metadata__", metadata_json(metadata));
  std::int64_t offset = 0;
  for (const std::string& name : order) {
    check_text(name, "the tensor name");
    if (name == "__metadata__") fail_usage("safetensors", "no tensor can be called {}", name);
    const Type& type = types.at(name);
    Json::Array shape(type.shape.begin(), type.shape.end());
    const std::int64_t end = offset + type.bytes();
    header.emplace_back(name, Json::Object{{"dtype", kNames[rank_of(type.dtype)].second},
                                           {"shape", std::move(shape)},
                                           {"data_offsets", Json::Array{offset, end}}});
    offset = end;
  }
  std::string text = Json(std::move(header)).dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : SafetensorsFile(InputFile(path, "safetensors")) {}

SafetensorsFile::SafetensorsFile(InputFile file) : file_(std::move(file)) {
  const std::string name = file_.path().string();
  std::array<std::byte, kForeignStart> start{};
  const auto known = std::span(start).first(std::min<std::size_t>(start.size(), file_.size()));
  file_.read(0, known);
  std::string text(safetensors_header_bytes(known, file_.size(), name), '\0');
  file_.read(sizeof(std::uint64_t), std::as_writable_bytes(std::span(text)));
  data_start_ = sizeof(std::uint64_t) + text.size();
  SafetensorsHeader header = parse_safetensors_header(text, file_.size() - data_start_, name);
  entries_ = std::move(header.entries);
  metadata_ = std::move(header.metadata);
  by_name_.resize(entries_.size());
  std::iota(by_name_.begin(), by_name_.end(), 0u);
  std::ranges::sort(
      by_name_, {}, [&](std::uint32_t i) -> auto& { return entries_[i].name; });
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> out;
  for (const Entry& entry : entries_) out.push_back(entry.name);
  return out;
}

const SafetensorsFile::Entry* SafetensorsFile::find(std::string_view name) const {
  const auto name_of = [&](std::uint32_t i) -> std::string_view { return entries_[i].name; };
  const auto it = std::ranges::lower_bound(by_name_, name, {}, name_of);
  return it == by_name_.end() || name_of(*it) != name ? nullptr : &entries_[*it];
}

Type SafetensorsFile::type(std::string_view name) const {
  const Entry* entry = find(name);
  const std::string where = path().string();
  if (entry == nullptr) {
    fail_input("safetensors", "{} has no tensor {}", where, printable(name));
  }
  const std::optional<DType> dtype = dtype_of(entry->dtype);
  if (!dtype) {
    fail_input("safetensors",
               "{}: tensor {} is {}, which cannot be read; convert it to one of F64, F32, BF16, "
               "F16, I64, I32, U8, BOOL",
               where, printable(name), entry->dtype);
  }
  if (entry->shape.size() > kMaxRank) {
    fail_input("safetensors", "{}: tensor {} has {} dimensions; at most {} can be read", where,
               printable(name), entry->shape.size(), kMaxRank);
  }
  return {*dtype, Shape(std::span<const std::int64_t>(entry->shape))};
}

HostTensor SafetensorsFile::read(std::string_view name) const {
  const auto [dtype, shape] = type(name);
  const Entry& entry = *find(name);
  HostTensor out{dtype, shape, std::vector<std::byte>(entry.end - entry.begin)};
  read_part(entry, 0, out.bytes);
  return out;
}

std::vector<std::string> order_in_file(const TensorTypes& types) {
  std::vector<std::string> order;
  for (const auto& [name, type] : types) order.push_back(name);
  std::ranges::stable_sort(order, std::greater(),
                           [&](const std::string& name) { return rank_of(types.at(name).dtype); });
  return order;
}

SafetensorsOutput::SafetensorsOutput(const std::filesystem::path& path, const TensorTypes& types,
                                     const Metadata& metadata)
    : order_(order_in_file(types)), file_(path) {
  write_header(types, metadata);
}

SafetensorsOutput::SafetensorsOutput(const Directory& folder, const std::string& name,
                                     const TensorTypes& types)
    : order_(order_in_file(types)), file_(folder, name) {
  write_header(types, {});
}

void SafetensorsOutput::write_header(const TensorTypes& types, const Metadata& metadata) {
  const std::string header = header_of(order_, types, metadata);
  const std::uint64_t size = header.size();
  file_.write(std::as_bytes(std::span(&size, 1)));
  file_.write(header);
  for (const std::string& name : order_) bytes_.push_back(types.at(name).bytes());
}

void SafetensorsOutput::add(const TensorView& tensor) {
  TRACESTEP_CHECK(added_ < order_.size(), "there are only {} tensors", order_.size());
  TRACESTEP_CHECK(tensor.bytes.size() == static_cast<std::size_t>(bytes_[added_]),
                  "{}: {} bytes instead of {}", order_[added_], tensor.bytes.size(),
                  bytes_[added_]);
  file_.write(tensor.bytes);
  ++added_;
}

void SafetensorsOutput::commit() {
  TRACESTEP_CHECK(added_ == order_.size(), "{} is missing", order_[added_]);
  file_.commit();
}

void write_safetensors(const std::filesystem::path& path, const TensorMap& tensors,
                       const SafetensorsOutput::Metadata& metadata) {
  TensorTypes types;
  for (const auto& [name, tensor] : tensors) types[name] = {tensor.dtype, tensor.shape};
  SafetensorsOutput file(path, types, metadata);
  for (const std::string& name : file.order()) file.add(tensors.at(name));
  file.commit();
}

}  // namespace tracestep
