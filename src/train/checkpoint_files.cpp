#include "train/checkpoint_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <system_error>

#include <fmt/ranges.h>

#include "base/error.h"
#include "train/checksum.h"
#include "train/mapped_file.h"
#include "train/output_file.h"

namespace tracestep {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kTemporary = ".tmp-", kReplaced = ".old-";
constexpr std::string_view kSchema = "tracestep.checkpoint/1";
constexpr std::array<const char*, 2> kTensorFiles = {"model.safetensors", "state.safetensors"};

std::string folder_name(std::int64_t step) {
  return fmt::format("{}{:08}", kPrefix, step);
}

// The step that a folder of this name holds; nullopt for any other name.
std::optional<std::int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  std::int64_t step = -1;
  const char* last = name.data() + name.size();
  const auto [end, error] = std::from_chars(name.data() + kPrefix.size(), last, step);
  if (error != std::errc() || end != last || step < 0 || name != folder_name(step)) {
    return std::nullopt;
  }
  return step;
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string checksum_text(std::span<const std::byte> bytes) {
  return fmt::format("{:016x}", checksum(bytes));
}

std::string checksum_text(const std::string& text) {
  return checksum_text(std::as_bytes(std::span(text)));
}

// Every step below `folder`, newest first. Errors: kInput when it cannot be listed.
std::vector<std::int64_t> list_steps(const fs::path& folder) {
  std::error_code error;
  std::vector<std::int64_t> steps;
  fs::directory_iterator it(folder, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    if (const auto step = step_of(it->path().filename().string())) steps.push_back(*step);
  }
  if (error) {
    fail_input("checkpoint", "{} cannot be read: {}", folder.string(), error.message());
  }
  std::ranges::sort(steps, std::greater());
  return steps;
}

// The step that DIR/latest names; nullopt when it is missing or names nothing.
std::optional<std::int64_t> latest_step(const fs::path& folder) {
  try {
    std::string name = text_of(MappedFile(folder / "latest", "checkpoint").bytes());
    if (name.ends_with('\n')) name.pop_back();
    return step_of(name);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// `latest` first; then what came before it; then later steps, which another run may have left.
std::vector<std::int64_t> in_order_of_trust(const fs::path& folder) {
  std::vector<std::int64_t> steps = list_steps(folder);
  if (const auto latest = latest_step(folder)) {
    std::ranges::stable_partition(steps, [&](std::int64_t step) { return step <= *latest; });
  }
  return steps;
}

Json meta_document(const fs::path& folder, std::int64_t step, const Json& meta) {
  Json files = Json::object();
  for (const char* name : kTensorFiles) {
    const MappedFile file(folder / name, "checkpoint");
    files[name]["bytes"] = static_cast<std::int64_t>(file.size());
    files[name]["checksum"] = checksum_text(file.bytes());
  }
  Json out = Json::object();
  out["schema"] = kSchema;
  out["step"] = step;
  out["files"] = std::move(files);
  out["meta"] = meta;
  out["checksum"] = checksum_text(out.dump());
  return out;
}

// The document without its own checksum, verified. Errors: kInput.
Json read_meta(const fs::path& folder, std::int64_t step) {
  const fs::path path = folder / "meta.json";
  const Json document = Json::parse(text_of(MappedFile(path, "checkpoint").bytes()), path.string());
  const std::string& sum = document.at("checksum").as_string();
  Json::Object members = document.members();
  std::erase_if(members, [](const auto& member) { return member.first == "checksum"; });
  Json rest(std::move(members));
  if (checksum_text(rest.dump()) != sum) {
    fail_input("checkpoint", "{} does not match its checksum", path.string());
  }
  if (rest.at("schema").as_string() != kSchema || rest.at("step").as_int() != step) {
    fail_input("checkpoint", "{} is not the {} of step {}", path.string(), kSchema, step);
  }
  return rest;
}

SafetensorsFile read_tensors(const fs::path& path, const Json& expected) {
  {
    const MappedFile file(path, "checkpoint");
    const auto size = static_cast<std::int64_t>(file.size());
    if (size != expected.at("bytes").as_int() ||
        checksum_text(file.bytes()) != expected.at("checksum").as_string()) {
      fail_input("checkpoint", "{} does not match its checksum", path.string());
    }
  }
  return SafetensorsFile(path);
}

Checkpoint load_step(const fs::path& root, std::int64_t step) {
  const fs::path folder = root / folder_name(step);
  const Json document = read_meta(folder, step);
  const Json& files = document.at("files");
  return {step,
          folder,
          read_tensors(folder / kTensorFiles[0], files.at(kTensorFiles[0])),
          read_tensors(folder / kTensorFiles[1], files.at(kTensorFiles[1])),
          document.at("meta"),
          {}};
}

[[noreturn]] void fail_output(const fs::path& path, const std::string& reason) {
  throw Error(ErrorCode::kOutput, "checkpoint",
              fmt::format("{} cannot be written: {}", path.string(), reason));
}

void rename_or_fail(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) fail_output(to, error.message());
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail_output(folder, error.message());
}

// Removes a folder in the end even when it is not written to the end.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(fs::path path) : path_(std::move(path)) { make_folder(path_); }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

}  // namespace

std::optional<Checkpoint> load_checkpoint(const fs::path& folder) {
  std::error_code error;
  const fs::file_status status = fs::status(folder, error);
  if (status.type() == fs::file_type::not_found) return std::nullopt;
  if (!fs::is_directory(status)) {
    fail_input("checkpoint", "{} is not a folder of checkpoints", folder.string());
  }
  std::vector<std::string> damage;
  for (std::int64_t step : in_order_of_trust(folder)) {
    try {
      Checkpoint found = load_step(folder, step);
      found.warnings = std::move(damage);
      return found;
    } catch (const Error& e) {
      damage.push_back(fmt::format("{} is damaged: {}", folder_name(step), e.what()));
    }
  }
  if (damage.empty()) return std::nullopt;
  throw Error(
      ErrorCode::kInput, "checkpoint",
      fmt::format("{} has no undamaged checkpoint: {}", folder.string(), fmt::join(damage, "; ")),
      "start without --resume in another folder");
}

CheckpointWriter::CheckpointWriter(const fs::path& folder, int keep)
    : folder_(folder), keep_(keep) {
  if (keep < 1) fail_usage("checkpoint", "{} checkpoints cannot be kept; at least 1", keep);
  std::error_code error;
  const fs::file_status status = fs::status(folder, error);
  if (fs::exists(status) && !fs::is_directory(status)) fail_output(folder, "it is not a folder");
  make_folder(folder);
  const fs::path lock = folder / ".lock";
  lock_ = ::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
  if (lock_ < 0) fail_output(folder, std::strerror(errno));
  // Some network file systems have no locks; then the user must see to it.
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(lock_);
    fail_output(folder, "another process writes its checkpoints there");
  }
  try {
    remove_leftovers();
  } catch (...) {
    ::close(lock_);
    throw;
  }
}

CheckpointWriter::~CheckpointWriter() {
  ::close(lock_);
}

void CheckpointWriter::remove_leftovers() {
  std::error_code error;
  std::vector<fs::path> leftovers;
  fs::directory_iterator it(folder_, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    const std::string name = it->path().filename().string();
    const bool is_temporary_file = name.starts_with(".tracestep-") && name.ends_with(".tmp");
    if (name.starts_with(kTemporary) || name.starts_with(kReplaced) || is_temporary_file) {
      leftovers.push_back(it->path());
    }
  }
  for (const fs::path& path : leftovers) {
    // Killed between taking the old one away and putting the new one in place: put it back.
    const std::string name = path.filename().string();
    const fs::path final_path = folder_ / name.substr(std::min(name.size(), kReplaced.size()));
    if (!error && name.starts_with(kReplaced) && !fs::exists(final_path)) {
      rename_or_fail(path, final_path);
    } else if (!error) {
      fs::remove_all(path, error);
    }
  }
  if (error) fail_output(folder_, error.message());
}

void CheckpointWriter::save(std::int64_t step, const TensorMap& model, const TensorMap& state,
                            const Json& meta) {
  const std::string name = folder_name(step);
  const TemporaryFolder temporary(folder_ / (std::string(kTemporary) + name));
  write_safetensors(temporary.path() / kTensorFiles[0], model);
  write_safetensors(temporary.path() / kTensorFiles[1], state);
  write_file(temporary.path() / "meta.json",
             meta_document(temporary.path(), step, meta).dump(2) + "\n");
  sync_directory(temporary.path());

  const fs::path place = folder_ / name;
  const fs::path replaced = folder_ / (std::string(kReplaced) + name);
  std::error_code ignored;
  fs::remove_all(replaced, ignored);
  const bool replaces = fs::exists(place);
  if (replaces) rename_or_fail(place, replaced);
  try {
    rename_or_fail(temporary.path(), place);
  } catch (const Error&) {
    if (replaces) fs::rename(replaced, place, ignored);
    throw;
  }
  sync_directory(folder_);
  write_file(folder_ / "latest", name + "\n");
  fs::remove_all(replaced, ignored);  // at worst disk space is lost until the next start
  prune(step);
}

void CheckpointWriter::prune(std::int64_t step) {
  int kept = 0;
  for (std::int64_t old : list_steps(folder_)) {
    if (old > step || ++kept <= keep_) continue;
    // Out of sight first: a half-removed folder must not look like a damaged checkpoint.
    const fs::path hidden = folder_ / (std::string(kTemporary) + folder_name(old));
    std::error_code error;
    fs::rename(folder_ / folder_name(old), hidden, error);
    if (!error) fs::remove_all(hidden, error);
  }
}

}  // namespace tracestep
