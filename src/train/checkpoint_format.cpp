#include "train/checkpoint_format.h"

#include <array>
#include <charconv>
#include <span>

#include "base/error.h"
#include "base/hash.h"
#include "base/output_file.h"
#include "train/checksum.h"

namespace tracestep {
namespace {

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kSchema = "tracestep.checkpoint/2";
constexpr std::string_view kSchema1 = "tracestep.checkpoint/1";
constexpr const char* kMeta = "meta.json";
constexpr std::array<const char*, 2> kTensorFiles = {"model.safetensors", "state.safetensors"};

// A limit far above the few KiB that the sizes and shapes of a run take.
constexpr std::uint64_t kMostMetaBytes = std::uint64_t{1} << 20;

// The checksum of a schema, of a text and of a file.
struct ChecksumOf {
  std::string (*text)(const std::string&);
  std::string (*file)(const InputFile&);
};

constexpr ChecksumOf kXxh3{
    [](const std::string& text) { return hash_text(std::as_bytes(std::span(text))); }, hash_file};

std::string text_of(const Checksum1& sum) {
  return fmt::format("{:016x}", sum.value());
}

constexpr ChecksumOf kSum1{[](const std::string& text) {
                             Checksum1 sum;
                             sum.add(std::as_bytes(std::span(text)));
                             return text_of(sum);
                           },
                           [](const InputFile& file) {
                             Checksum1 sum;
                             file.for_each_part([&](auto part) { sum.add(part); });
                             return text_of(sum);
                           }};

Json meta_document(const Directory& folder, std::int64_t step, const Json& meta) {
  Json files = Json::object();
  for (const char* name : kTensorFiles) {
    const InputFile file = folder.open_input(name, "checkpoint");
    files[name]["bytes"] = static_cast<std::int64_t>(file.size());
    files[name]["checksum"] = kXxh3.file(file);
  }
  Json out = Json::object();
  out["schema"] = kSchema;
  out["step"] = step;
  out["files"] = std::move(files);
  out["meta"] = meta;
  out["checksum"] = kXxh3.text(out.dump());
  return out;
}

const ChecksumOf& checksum_of(const Json& document, const std::string& where) {
  const std::string& schema = document.at("schema").as_string();
  if (schema == kSchema) return kXxh3;
  if (schema == kSchema1) return kSum1;
  fail_input("checkpoint", "{} has the schema {}; {} and {} can be read", where, schema, kSchema1,
             kSchema);
}

// The document without its own checksum, verified.
Json read_meta(const Directory& folder, std::int64_t step, const ChecksumOf*& checksum) {
  const InputFile file = folder.open_input(kMeta, "checkpoint");
  const std::string where = file.path().string();
  const Json document = Json::parse(file.text(kMostMetaBytes), where);
  checksum = &checksum_of(document, where);
  Json::Object members = document.members();
  std::erase_if(members, [](const auto& member) { return member.first == "checksum"; });
  Json rest(std::move(members));
  if (checksum->text(rest.dump()) != document.at("checksum").as_string()) {
    fail_input("checkpoint", "{} does not match its checksum", where);
  }
  if (rest.at("step").as_int() != step) {
    fail_input("checkpoint", "{} is that of step {}", where, rest.at("step").as_int());
  }
  return rest;
}

SafetensorsFile read_tensors(const Directory& folder, const char* name, const Json& files,
                             const ChecksumOf& checksum) {
  InputFile file = folder.open_input(name, "checkpoint");
  const Json& expected = files.at(name);
  if (static_cast<std::int64_t>(file.size()) != expected.at("bytes").as_int() ||
      checksum.file(file) != expected.at("checksum").as_string()) {
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
  const ChecksumOf* checksum = nullptr;
  const Json document = read_meta(folder, step, checksum);
  const Json& files = document.at("files");
  return {step,
          folder.path(),
          read_tensors(folder, kTensorFiles[0], files, *checksum),
          read_tensors(folder, kTensorFiles[1], files, *checksum),
          document.at("meta"),
          {}};
}

}  // namespace tracestep
