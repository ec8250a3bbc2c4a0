// The folder of a checkpoint. The input is its description and, behind a NUL, the content that each
// file has; the checksums are made to match, since no change of a byte would come past them.
#include "weights/checkpoint_format.h"

#include <cstdlib>

#include "base/hash.h"
#include "base/output_file.h"
#include "fuzz/fuzz_target.h"

using namespace tracestep;
using namespace tracestep::fuzzing;

namespace {

constexpr std::int64_t kStep = 100;
constexpr std::size_t kMostFiles = 6;

std::string hash_of(std::string_view text) {
  return hash_text(std::as_bytes(std::span(text)));
}

// A folder in memory, where the system has one.
std::filesystem::path new_folder() {
  std::string name = "/dev/shm/fuzz-checkpoint-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) {
    name = "/tmp/fuzz-checkpoint-XXXXXX";
    require(::mkdtemp(name.data()) != nullptr);
  }
  return name;
}

struct Folder {
  Folder() { std::filesystem::create_directory(path / checkpoint_name(kStep)); }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  const std::filesystem::path path = new_folder();
};

bool is_plain(const std::string& name) {
  return !name.empty() && name.size() < 100 && name[0] != '.' &&
         name.find_first_of(std::string_view("/\0", 2)) == std::string::npos;
}

// Writes the files that the description names, and gives it their facts.
void write_files(const Directory& folder, Json& document, std::string_view content) {
  for (const std::string& name : folder.names()) folder.remove(name);
  const Json* files = document.is_object() ? document.find("files") : nullptr;
  if (files != nullptr && files->is_object()) {
    Json named = Json::object();
    for (const auto& [name, entry] : files->members()) {
      if (named.size() == kMostFiles || !is_plain(name)) continue;
      write_file(folder, name, content);
      named[name]["bytes"] = static_cast<std::int64_t>(content.size());
      named[name]["checksum"] = hash_of(content);
    }
    document["files"] = std::move(named);
  }
  if (document.is_object()) {
    Json::Object members = document.members();
    std::erase_if(members, [](const auto& member) { return member.first == "checksum"; });
    document = Json(std::move(members));
    document["checksum"] = hash_of(document.dump());
  }
  write_file(folder, "meta.json", document.dump());
}

void look(const SavedTensors& tensors) {
  for (const std::string& name : tensors.names()) {
    accepts([&] {
      const HostTensor tensor = tensors.read(name);
      require(tensor.dtype == tensors.type(name).dtype && tensor.shape == tensors.type(name).shape);
    });
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Folder here;
  const std::string_view input = text_of(data, size);
  const std::size_t end = std::min(input.find('\0'), input.size());
  accepts([&] {
    Json document = Json::parse(input.substr(0, end), "input");
    const auto root = Directory::open(here.path, ErrorCode::kInput);
    require(root.has_value());
    write_files(root->open_folder(checkpoint_name(kStep)), document,
                input.substr(std::min(end + 1, input.size())));
    for (const Verify verify : {Verify::kDescription, Verify::kAll}) {
      const Checkpoint read = read_checkpoint(*root, kStep, verify);
      look(read.model);
      look(read.state);
    }
  });
  return 0;
}
