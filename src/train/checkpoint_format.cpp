#include "train/checkpoint_format.h"

#include <array>
#include <charconv>
#include <span>

#include "base/error.h"
#include "train/checksum.h"
#include "train/hash.h"
#include "train/output_file.h"

namespace tracestep {
namespace {

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kSchema = "tracestep.checkpoint/2";
constexpr std::string_view kSchema1 = "tracestep.checkpoint/1";
constexpr const char* kMeta = "meta.json";
constexpr std::array<const char*, 2> kTensorFiles = {"model.safetensors", "state.safetensors"};

using ChecksumText = std::string (*)(std::span<const std::byte>);

std::string checksum_1_text(std::span<const std::byte> bytes) {
  return fmt::format("{:016x}", checksum_1(bytes));
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

Json meta_document(const Directory& folder, std::int64_t step, const Json& meta) {
  Json files = Json::object();
  for (const char* name : kTensorFiles) {
    const MappedFile file(folder, name, "checkpoint");
    files[name]["bytes"] = static_cast<std::int64_t>(file.size());
    files[name]["checksum"] = hash_text(file.bytes());
  }
  Json out = Json::object();
  out["schema"] = kSchema;
  out["step"] = step;
  out["files"] = std::move(files);
  out["meta"] = meta;
  out["checksum"] = hash_text(bytes_of(out.dump()));
  return out;
}

ChecksumText checksum_of(const Json& document, const std::string& where) {
  const std::string& schema = document.at("schema").as_string();
  if (schema == kSchema) return hash_text;
  if (schema == kSchema1) return checksum_1_text;
  fail_input("checkpoint", "{} has the schema {}; {} and {} can be read", where, schema, kSchema1,
             kSchema);
}

// The document without its own checksum, verified.
Json read_meta(const Directory& folder, std::int64_t step, ChecksumText& checksum) {
  const MappedFile file(folder, kMeta, "checkpoint");
  const std::string where = file.path().string();
  const std::string text(reinterpret_cast<const char*>(file.bytes().data()), file.size());
  const Json document = Json::parse(text, where);
  checksum = checksum_of(document, where);
  Json::Object members = document.members();
  std::erase_if(members, [](const auto& member) { return member.first == "checksum"; });
  Json rest(std::move(members));
  if (checksum(bytes_of(rest.dump())) != document.at("checksum").as_string()) {
    fail_input("checkpoint", "{} does not match its checksum", where);
  }
  if (rest.at("step").as_int() != step) {
    fail_input("checkpoint", "{} is that of step {}", where, rest.at("step").as_int());
  }
  return rest;
}

SafetensorsFile read_tensors(const Directory& folder, const char* name, const Json& files,
                             ChecksumText checksum) {
  MappedFile file(folder, name, "checkpoint");
  const Json& expected = files.at(name);
  if (static_cast<std::int64_t>(file.size()) != expected.at("bytes").as_int() ||
      checksum(file.bytes()) != expected.at("checksum").as_string()) {
    fail_input("checkpoint", "{} does not match its checksum", file.path().string());
  }
  return SafetensorsFile(std::move(file));
}

}  // namespace

std::string checkpoint_name(std::int64_t step) {
  return fmt::format("{}{:08}", kPrefix, step);
}

std::optional<std::int64_t> checkpoint_step(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  std::int64_t step = -1;
  const char* last = name.data() + name.size();
  const auto [end, error] = std::from_chars(name.data() + kPrefix.size(), last, step);
  if (error != std::errc() || end != last || step < 0 || name != checkpoint_name(step)) {
    return std::nullopt;
  }
  return step;
}

void write_checkpoint(const Directory& folder, std::int64_t step, const TensorMap& model,
                      const TensorMap& state, const Json& meta) {
  write_safetensors(folder, kTensorFiles[0], model);
  write_safetensors(folder, kTensorFiles[1], state);
  write_file(folder, kMeta, meta_document(folder, step, meta).dump(2) + "\n");
}

Checkpoint read_checkpoint(const Directory& root, std::int64_t step) {
  const std::string name = checkpoint_name(step);
  if (root.kind_of(name) == Directory::Kind::kLink) {
    fail_input("checkpoint", "{} is a symbolic link", (root.path() / name).string());
  }
  const Directory folder = root.open_folder(name);
  ChecksumText checksum = nullptr;
  const Json document = read_meta(folder, step, checksum);
  const Json& files = document.at("files");
  return {step,
          folder.path(),
          read_tensors(folder, kTensorFiles[0], files, checksum),
          read_tensors(folder, kTensorFiles[1], files, checksum),
          document.at("meta"),
          {}};
}

}  // namespace tracestep
