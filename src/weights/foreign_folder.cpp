// Recognises folders of models whose weights are in files other than safetensors.
#include <algorithm>
#include <set>
#include <system_error>

#include "base/error.h"
#include "base/input_file.h"
#include "base/json.h"
#include "base/utf8.h"
#include "weights/weight_files.h"

namespace tracestep {
namespace fs = std::filesystem;
namespace {

constexpr const char* kAdapter = "adapter_config.json";

struct Kind {
  std::string_view prefix, ending;
  ForeignFile file;
};

constexpr std::string_view kSaveAgain =
    "load the model in transformers and save it again: save_pretrained(DIR) writes safetensors";
// The kinds of files, of which the first that matches a file in the folder decides.
constexpr Kind kKinds[] = {
    {"", ".gguf", {"GGUF files of llama.cpp", "take the safetensors that they were made from"}},
    {"consolidated",
     ".pth",
     {"PyTorch archives under the names of the model's first code",
      "take the folder that was made for transformers"}},
    {"pytorch_model", ".bin", {"PyTorch archives", kSaveAgain}},
    {"", ".pth", {"PyTorch archives", kSaveAgain}},
    {"", ".pt", {"PyTorch archives", kSaveAgain}},
    {"tf_model", ".h5", {"files of TensorFlow", kSaveAgain}},
    {"flax_model", ".msgpack", {"files of Flax", kSaveAgain}},
    {"", ".onnx", {"ONNX graphs", kSaveAgain}},
    {"",
     ".safetensors",
     {"safetensors under another name",
      "name it model.safetensors if its tensors have the names that transformers gives them"}}};

std::set<std::string> files_in(const fs::path& folder) {
  std::set<std::string> out;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    out.insert(it->path().filename().string());
  }
  return out;
}

// Returns ", which changes NAME" with an adapter's base model; "" if its file does not name one.
std::string changed_by(const fs::path& adapter) {
  try {
    const Json fields = Json::parse(read_text_file(adapter, "init"_field, std::uint64_t{1} << 20),
                                    adapter.string());
    return ", which changes " + printable(fields.at("base_model_name_or_path").as_string());
  } catch (const Error&) {
    return "";
  }
}

}  // namespace

void refuse_foreign_weights(const fs::path& folder) {
  const std::set<std::string> files = files_in(folder);
  if (files.contains(kAdapter)) {
    throw Error(
        ErrorCode::kInput, folder,
        fmt::format("it holds an adapter (LoRA){}, and no model", changed_by(folder / kAdapter)),
        "merge it into its model first (merge_and_unload() of peft, then save_pretrained()), or "
        "give "
        "the model by " TRACESTEP_OPTION(model) " and this folder by " TRACESTEP_OPTION(
            lora) " from=DIR");
  }
  for (const Kind& kind : kKinds) {
    const auto found = std::ranges::find_if(files, [&](const std::string& name) {
      return name.starts_with(kind.prefix) && name.ends_with(kind.ending);
    });
    if (found == files.end()) continue;
    throw Error(ErrorCode::kInput, folder,
                fmt::format("its weights are {} ({}); read is safetensors", kind.file.what,
                            printable(*found)),
                std::string(kind.file.hint));
  }
}

}  // namespace tracestep
