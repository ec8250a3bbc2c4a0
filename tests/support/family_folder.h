// A published model as a folder: made of a fixture of tests/golden/families.
#pragma once

#include <filesystem>
#include <string>

#include "base/input_file.h"
#include "base/output_file.h"
#include "support/paths.h"
#include "weights/safetensors.h"

namespace tracestep::testing {

inline constexpr const char* kFamilyFixtures[] = {
    "llama2", "llama3",     "llama_yarn",  "llama_linear", "mistral",    "qwen2",
    "qwen3",  "gemma2",     "gemma3",      "olmo2",        "phi3",       "smollm2",
    "gpt2",   "pythia",     "neox_serial", "phi3_near",    "phi3_far",   "gemma",
    "olmo3",  "starcoder2", "smollm3",     "qwen2_vl",     "qwen2_5_vl", "stablelm"};

inline std::filesystem::path family_fixture(const std::string& name, const std::string& ending) {
  return source_folder() / "tests/golden/families" / (name + ending);
}

// Writes config.json and model.safetensors with the fixture's weights, or with what it has under
// another prefix of their names.
inline void write_family_fixture(const std::string& name, const std::filesystem::path& folder,
                                 const std::string& prefix = "weights.") {
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(family_fixture(name, ".json"), folder / "config.json");
  const SafetensorsFile from(family_fixture(name, ".safetensors"));
  std::map<std::string, HostTensor> tensors;
  for (const std::string& tensor : from.names()) {
    if (tensor.starts_with(prefix)) tensors[tensor.substr(prefix.size())] = from.read(tensor);
  }
  write_safetensors(folder / "model.safetensors", {tensors.begin(), tensors.end()});
}

}  // namespace tracestep::testing
