// Runs that meet infinities and NaN, as a person sees them.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>

#include "base/json.h"
#include "cli/run_binary.h"
#include "support/temp_folder.h"
#include "weights/not_finite.h"
#include "weights/saved_tensors.h"

namespace tracestep {
namespace {

namespace fs = std::filesystem;

const std::string kSizes = " --d-model 8 --d-ff 8 --layers 1 --heads 2 --threads 1";

class NotFiniteRunTest : public testing::Test {
 protected:
  NotFiniteRunTest() {
    std::string text;
    for (int i = 0; i < 200; ++i) text += "the quick brown fox jumps over the lazy dog. ";
    folder_.write("text.txt", text);
  }

  ProgramRun run(const std::string& arguments) const {
    return run_tracestep(words_of(arguments), {.folder = folder_.path()});
  }
  std::string last_line(const char* name) const {
    std::string text = content_of(folder_ / name);
    text.pop_back();
    return text.substr(text.rfind('\n') + 1);
  }
  int finite_checkpoints() const {
    int count = 0;
    for (const auto& entry : fs::directory_iterator(folder_ / "c")) {
      if (!entry.is_directory()) continue;
      ++count;
      for (const char* file : {"model.safetensors", "state.safetensors"}) {
        EXPECT_FALSE(find_not_finite(SavedTensors(entry.path() / file))) << entry.path();
      }
    }
    return count;
  }
  // Weights of a short training, some of their values replaced.
  using Edit = std::function<void(const std::string& name, std::span<float> values)>;
  void write_weights(const Edit& edit) const {
    ASSERT_EQ(run("train --text text.txt --steps 1 --save good.safetensors" + kSizes).status, 0);
    const SafetensorsFile good(folder_ / "good.safetensors");
    std::map<std::string, HostTensor> tensors;
    for (const SafetensorsFile::Entry& entry : good.entries()) {
      HostTensor tensor = good.read(entry.name);
      edit(entry.name, tensor.as<float>());
      tensors.emplace(entry.name, std::move(tensor));
    }
    write_safetensors(folder_ / "bad.safetensors", TensorMap(tensors.begin(), tensors.end()),
                      {{"heads", "2"}});
    fs::copy_file(folder_ / "good.safetensors.tokenizer", folder_ / "bad.safetensors.tokenizer");
  }

  TempFolder folder_;
};

TEST_F(NotFiniteRunTest, ADivergedRunEndsWithStatusEightAndCanBeResumedWithASmallerRate) {
  for (const char* precision : {"fp32", "bf16", "fp16"}) {
    fs::remove_all(folder_ / "c");
    const std::string train =
        "train --text text.txt --steps 30 --checkpoint c --checkpoint-every 1 --log log.jsonl "
        "--save w.safetensors --precision " +
        std::string(precision) + kSizes;
    const ProgramRun diverged = run(train + " --lr 1e30");
    EXPECT_EQ(diverged.status, 8) << diverged.err;
    EXPECT_TRUE(contains(diverged.err, "[step 2] the ")) << precision;
    EXPECT_TRUE(contains(diverged.err, "the learning rate"));
    EXPECT_TRUE(contains(diverged.err, "the last finite checkpoint is step 1 in c"));
    EXPECT_EQ(finite_checkpoints(), 1);
    EXPECT_FALSE(fs::exists(folder_ / "w.safetensors"));
    const Json line = Json::parse(last_line("log.jsonl"), "log");
    EXPECT_EQ(line.at("step").as_int(), 2);
    EXPECT_TRUE(line.at("grad_norm").is_null());
  }
  // A second run resumes from before the leap.
  fs::remove_all(folder_ / "c");
  const std::string train =
      "train --text text.txt --checkpoint c --checkpoint-every 5 --log log.jsonl --resume" + kSizes;
  ASSERT_EQ(run(train + " --steps 10").status, 0);
  EXPECT_EQ(run(train + " --steps 20 --lr 1e30 --change lr").status, 8);
  EXPECT_EQ(finite_checkpoints(), 2);
  fs::remove_all(folder_ / "c/step-00000011");
  const ProgramRun resumed = run(train + " --steps 20 --format json");
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  const Json row = Json::parse(resumed.out, "train").at("rows").items()[0];
  EXPECT_EQ(row.at("resumed_from").as_int(), 10);
  EXPECT_LT(row.at("loss").as_double(), 6.0);
}

TEST_F(NotFiniteRunTest, ARateThatFloat32CannotHoldIsAUsageError) {
  const ProgramRun done = run("train --text text.txt --steps 1 --lr 1e39" + kSizes);
  EXPECT_EQ(done.status, 2);
  EXPECT_TRUE(contains(done.err, "1e+39"));
}

TEST_F(NotFiniteRunTest, Float16ThatOverflowsAtEveryScaleWarnsAndEnds) {
  // The loss is finite; what flows back from a large last matrix through the norms is not.
  write_weights([](const std::string& name, std::span<float> values) {
    const float factor = name == "lm_head.weight"            ? 3e4F
                         : name == "token_embeddings.weight" ? 1e-4F
                                                             : 1.0F;
    for (float& x : values) x *= factor;
  });
  const ProgramRun done =
      run("train --text text.txt --precision fp16 --steps 100 --init bad.safetensors --lr 1e-6 "
          "--batch 1 --context 8" +
          kSizes);
  EXPECT_EQ(done.status, 8) << done.err;
  EXPECT_TRUE(contains(done.err, "in a row whose gradients overflow float16"));
  EXPECT_TRUE(contains(done.err, "the loss scale is at its floor of 1"));
}

TEST_F(NotFiniteRunTest, WeightsThatAreNotFiniteAreNamedByEveryCommand) {
  write_weights([](const std::string& name, std::span<float> values) {
    if (name == "lm_head.weight") values[0] = std::nanf("");
  });
  const std::string named = "lm_head.weight holds 1 NaN and 0 infinite of 2048 values";
  const ProgramRun train = run("train --text text.txt --steps 1 --init bad.safetensors" + kSizes);
  EXPECT_EQ(train.status, 8);
  EXPECT_TRUE(contains(train.err, named));
  const ProgramRun eval =
      run("eval --text text.txt --init bad.safetensors --batches 1 --context 16 --format json");
  EXPECT_EQ(eval.status, 8);
  EXPECT_TRUE(contains(eval.err, named));
  EXPECT_TRUE(Json::parse(eval.out, "eval").at("rows").items()[0].at("loss").is_null());
  const ProgramRun text = run("generate --init bad.safetensors --prompt 'the '");
  EXPECT_EQ(text.status, 8);
  EXPECT_TRUE(contains(text.err, named));
}

}  // namespace
}  // namespace tracestep
