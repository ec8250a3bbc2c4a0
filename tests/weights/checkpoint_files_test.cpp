#include "weights/checkpoint_files.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <numeric>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "support/temp_folder.h"
#include "tokens/tokenizer.h"

namespace tracestep {
namespace {

namespace fs = std::filesystem;

HostTensor filled(std::int64_t count, float value) {
  HostTensor out = HostTensor::zeros(DType::kF32, {count});
  std::ranges::fill(out.as<float>(), value);
  return out;
}

void save(CheckpointWriter& writer, std::int64_t step, std::int64_t count = 100) {
  const HostTensor weight = filled(count, static_cast<float>(step)), moment = filled(count, 0.5f);
  Json meta = Json::object();
  meta["loss"] = 1.0 / static_cast<double>(step + 3);
  meta["seed"] = std::int64_t{1} << 60;
  const auto tensors = [](const char* name, const HostTensor& value) {
    return TensorsToSave{{{name, Type{value.dtype, value.shape}}},
                         [&value](const std::string&) { return value; }};
  };
  writer.save(step, [&](const Directory& inside) {
    return !write_checkpoint(inside, step, tensors("w", weight), tensors("m", moment),
                             {meta, byte_tokenizer()->content()});
  });
}

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

void flip_byte(const fs::path& path, std::size_t from_end) {
  std::string content = content_of(path);
  content[content.size() - from_end] ^= 1;
  std::ofstream(path, std::ios::binary) << content;
}

TEST(CheckpointFilesTest, WhatWasSavedIsLoaded) {
  const TempFolder folder;
  CheckpointWriter writer(folder / "a/b");
  save(writer, 100);
  const auto found = load_checkpoint(folder / "a/b");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->step, 100);
  EXPECT_EQ(found->model.read("w").as<float>()[99], 100.0f);
  EXPECT_EQ(found->state.read("m").as<float>()[0], 0.5f);
  EXPECT_EQ(found->meta.at("loss").as_double(), 1.0 / 103);
  EXPECT_EQ(found->meta.at("seed").as_int(), std::int64_t{1} << 60);
  EXPECT_EQ(parse_tokenizer(found->tokenizer, "")->name(), "bytes");
  EXPECT_TRUE(found->warnings.empty());
  EXPECT_EQ(names_in(folder / "a/b"), (std::set<std::string>{".lock", "latest", "step-00000100"}));
  EXPECT_EQ(content_of(folder / "a/b/latest"), "step-00000100\n");
}

TEST(CheckpointFilesTest, NothingIsFoundInAnEmptyOrMissingFolder) {
  const TempFolder folder;
  EXPECT_FALSE(load_checkpoint(folder / "missing"));
  EXPECT_FALSE(load_checkpoint(folder.path()));
  folder.write("step-1/meta.json", "not ours");
  folder.write("notes", "");
  EXPECT_FALSE(load_checkpoint(folder.path()));
  const CheckpointWriter writer(folder.path());
  EXPECT_FALSE(load_checkpoint(folder.path()));
  EXPECT_TRUE(contains(message_of(ErrorCode::kInput, [&] { load_checkpoint(folder / "notes"); }),
                       "is not a folder of checkpoints"));
}

TEST(CheckpointFilesTest, OnlyTheLastFewAreKept) {
  const TempFolder folder;
  CheckpointWriter writer(folder.path());
  for (std::int64_t step : {1, 2, 3, 123456789}) save(writer, step);
  EXPECT_EQ(names_in(folder.path()),
            (std::set<std::string>{".lock", "latest", "step-00000003", "step-123456789"}));
  EXPECT_EQ(load_checkpoint(folder.path())->step, 123456789);
  message_of(ErrorCode::kUsage, [&] { CheckpointWriter(folder / "other", 0); });
}

TEST(CheckpointFilesTest, TheBestOneIsKeptUntilAnotherIsBetterOrARunStartsAnew) {
  const TempFolder folder;
  const auto has = [&](std::int64_t step) { return fs::exists(folder / checkpoint_name(step)); };
  {
    CheckpointWriter writer(folder.path());
    save(writer, 1);
    writer.keep_best(1);
    for (std::int64_t step : {2, 3, 4}) save(writer, step);
    EXPECT_TRUE(has(1) && !has(2) && has(3) && has(4));
  }
  EXPECT_EQ(checkpoint_of_weights(folder / "best")->step, 1);
  EXPECT_EQ(load_checkpoint(folder.path())->step, 4);
  {
    CheckpointWriter writer(folder.path());
    EXPECT_EQ(writer.best(), 1);
    save(writer, 5);
    writer.keep_best(5);
    save(writer, 6);
    EXPECT_FALSE(has(1));
  }
  CheckpointWriter writer(folder.path());
  writer.start_anew(true);
  EXPECT_EQ(content_of(folder / "best"), "step-00000005\n");
  save(writer, 2);
  EXPECT_FALSE(fs::exists(folder / "best"));
  EXPECT_FALSE(writer.best());
}

TEST(CheckpointFilesTest, AFileThatNamesNoCheckpointIsNone) {
  const TempFolder folder;
  CheckpointWriter writer(folder.path());
  save(writer, 1);
  folder.write("best", "step-00000002\n");
  EXPECT_TRUE(
      contains(message_of(ErrorCode::kInput, [&] { checkpoint_of_weights(folder / "best"); }),
               "step-00000002"));
  folder.write("best", "notes");
  EXPECT_FALSE(checkpoint_of_weights(folder / "best"));
  EXPECT_FALSE(checkpoint_of_weights(folder / "missing"));
}

TEST(CheckpointFilesTest, SavingAStepAgainReplacesIt) {
  const TempFolder folder;
  CheckpointWriter writer(folder.path());
  save(writer, 5, 100);
  save(writer, 5, 200);
  EXPECT_EQ(load_checkpoint(folder.path())->model.read("w").count(), 200);
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{".lock", "latest", "step-00000005"}));
}

TEST(CheckpointFilesTest, ARunThatStartsOverIsNotShadowedByLaterSteps) {
  const TempFolder folder;
  CheckpointWriter writer(folder.path());
  writer.start_anew(false);
  save(writer, 900);
  for (std::int64_t step : {1, 2, 3}) save(writer, step);
  EXPECT_EQ(load_checkpoint(folder.path())->step, 3);
  EXPECT_TRUE(fs::exists(folder / "step-00000900"));
}

TEST(CheckpointFilesTest, EveryKindOfDamageFallsBackToTheOneBefore) {
  using Damage = void (*)(const fs::path&);
  const std::vector<Damage> kinds = {
      [](const fs::path& f) { flip_byte(f / "model.safetensors", 1); },
      [](const fs::path& f) { flip_byte(f / "state.safetensors", 200); },
      [](const fs::path& f) { flip_byte(f / "meta.json", 30); },
      [](const fs::path& f) { fs::resize_file(f / "model.safetensors", 50); },
      [](const fs::path& f) { fs::resize_file(f / "state.safetensors", 0); },
      [](const fs::path& f) { fs::resize_file(f / "meta.json", 20); },
      [](const fs::path& f) { fs::remove(f / "meta.json"); },
      [](const fs::path& f) { fs::remove(f / "state.safetensors"); },
      [](const fs::path& f) { flip_byte(f / "tokenizer", 1); },
      [](const fs::path& f) { fs::resize_file(f / "tokenizer", 0); },
      [](const fs::path& f) { fs::remove(f / "tokenizer"); },
      [](const fs::path& f) { fs::remove_all(f); },
  };
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    const TempFolder folder;
    CheckpointWriter writer(folder.path());
    save(writer, 1);
    save(writer, 2);
    kinds[i](folder / "step-00000002");
    const auto found = load_checkpoint(folder.path());
    ASSERT_TRUE(found) << i;
    EXPECT_EQ(found->step, 1) << i;
    ASSERT_EQ(found->warnings.size(), 1u) << i;
    EXPECT_TRUE(contains(found->warnings[0], "step-00000002 is ")) << i;
  }
}

TEST(CheckpointFilesTest, DamageEverywhereIsAnErrorNotAFreshStart) {
  const TempFolder folder;
  CheckpointWriter writer(folder.path());
  save(writer, 1);
  flip_byte(folder / "step-00000001/model.safetensors", 1);
  const std::string message =
      message_of(ErrorCode::kInput, [&] { load_checkpoint(folder.path()); });
  EXPECT_TRUE(contains(message, "no undamaged checkpoint"));
  EXPECT_TRUE(contains(message, "does not match its checksum"));
}

TEST(CheckpointFilesTest, AMissingOrNonsenseLatestDoesNotMatter) {
  const TempFolder folder;
  CheckpointWriter writer(folder.path());
  save(writer, 1);
  save(writer, 2);
  for (const char* content : {"", "step-7", "../../etc", "step-00000099\n"}) {
    folder.write("latest", content);
    const auto found = load_checkpoint(folder.path());
    EXPECT_EQ(found->step, 2) << content;
    EXPECT_EQ(found->warnings.size(), 1u) << content;
  }
  fs::remove(folder / "latest");
  EXPECT_EQ(load_checkpoint(folder.path())->step, 2);
}

TEST(CheckpointFilesTest, ALatestWithoutItsCheckpointIsNoFreshStart) {
  const TempFolder folder;
  folder.write("latest", "step-00000007\n");
  EXPECT_TRUE(contains(message_of(ErrorCode::kInput, [&] { load_checkpoint(folder.path()); }),
                       "step-00000007 is missing, though latest names it"));
}

TEST(CheckpointFilesTest, DamagedCheckpointsStayAndNothingGoodGoesForThem) {
  const TempFolder folder;
  {
    CheckpointWriter writer(folder.path(), 4);
    for (std::int64_t step : {1, 2, 3, 4}) save(writer, step);
  }
  flip_byte(folder / "step-00000002/state.safetensors", 1);
  flip_byte(folder / "step-00000004/model.safetensors", 1);
  CheckpointWriter writer(folder.path(), 2);
  EXPECT_EQ(writer.load()->step, 3);
  save(writer, 5);
  // 5 and 3 are whole; 1 is one too many; 2 and 4 are for a person to look at.
  EXPECT_EQ(names_in(folder.path()),
            (std::set<std::string>{".lock", "latest", "step-00000002", "step-00000003",
                                   "step-00000004", "step-00000005"}));
  flip_byte(folder / "step-00000005/model.safetensors", 1);
  EXPECT_EQ(load_checkpoint(folder.path())->step, 3);
}

TEST(CheckpointFilesTest, AnEarlierRunIsRemovedOnlyOnceTheFirstNewCheckpointIsThere) {
  const TempFolder folder;
  {
    CheckpointWriter writer(folder.path());
    for (std::int64_t step : {8, 9}) save(writer, step);
  }
  CheckpointWriter writer(folder.path());
  const std::string message = message_of(ErrorCode::kUsage, [&] { writer.start_anew(false); });
  EXPECT_TRUE(contains(message, "step-00000009 the newest"));
  EXPECT_TRUE(contains(message, "option overwrite"));
  writer.start_anew(true);
  EXPECT_EQ(load_checkpoint(folder.path())->step, 9);
  save(writer, 1);
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{".lock", "latest", "step-00000001"}));
  save(writer, 2);
  EXPECT_EQ(load_checkpoint(folder.path())->step, 2);
  EXPECT_TRUE(fs::exists(folder / "step-00000001"));
}

// A folder outside that every kind of link leads to; nothing may happen to it.
class CheckpointLinksTest : public testing::Test {
 protected:
  CheckpointLinksTest() {
    outside_.write("file", "precious");
    outside_.write("folder/file", "precious");
    CheckpointWriter writer(folder_.path());
    save(writer, 1);
    save(writer, 2);
  }
  void TearDown() override {
    EXPECT_EQ(content_of(outside_ / "file"), "precious");
    EXPECT_EQ(content_of(outside_ / "folder/file"), "precious");
    EXPECT_EQ(names_in(outside_ / "folder"), std::set<std::string>{"file"});
    EXPECT_EQ(names_in(outside_.path()), (std::set<std::string>{"file", "folder"}));
  }
  // Puts a link in the place of a member.
  void link(const char* member, const char* target) const {
    fs::remove_all(folder_ / member);
    fs::create_symlink(outside_ / target, folder_ / member);
  }

  TempFolder folder_, outside_;
};

TEST_F(CheckpointLinksTest, ALinkAsLatestIsReplacedAndNotFollowed) {
  link("latest", "file");
  CheckpointWriter writer(folder_.path());
  const auto found = writer.load();
  EXPECT_EQ(found->step, 2);
  ASSERT_EQ(found->warnings.size(), 1u);
  EXPECT_TRUE(contains(found->warnings[0], "latest is a symbolic link"));
  save(writer, 3);
  EXPECT_FALSE(fs::is_symlink(folder_ / "latest"));
  EXPECT_EQ(content_of(folder_ / "latest"), "step-00000003\n");
}

TEST_F(CheckpointLinksTest, ALinkAsCheckpointIsDamageAndIsNeitherReadNorWrittenThrough) {
  fs::copy(folder_ / "step-00000002", folder_ / "elsewhere");
  link("step-00000002", "folder");
  {
    CheckpointWriter writer(folder_.path());
    const auto found = writer.load();
    EXPECT_EQ(found->step, 1);
    EXPECT_TRUE(contains(found->warnings.at(0), "step-00000002 is a symbolic link"));
    save(writer, 2);
  }
  EXPECT_FALSE(fs::is_symlink(folder_ / "step-00000002"));
  // A whole one elsewhere is no better: it is not this folder's to keep or to remove.
  fs::remove_all(folder_ / "step-00000002");
  fs::create_directory_symlink("elsewhere", folder_ / "step-00000002");
  EXPECT_EQ(load_checkpoint(folder_.path())->step, 1);
  CheckpointWriter writer(folder_.path());
  writer.start_anew(true);
  save(writer, 9);
  EXPECT_FALSE(fs::is_symlink(fs::symlink_status(folder_ / "step-00000002")));
  EXPECT_EQ(names_in(folder_ / "elsewhere").size(), 4u);
}

TEST_F(CheckpointLinksTest, ALinkAsFileOfACheckpointIsDamage) {
  fs::copy(folder_ / "step-00000002/model.safetensors", folder_ / "copy");
  fs::remove(folder_ / "step-00000002/model.safetensors");
  fs::create_symlink("../copy", folder_ / "step-00000002/model.safetensors");
  const auto found = load_checkpoint(folder_.path());
  EXPECT_EQ(found->step, 1);
  EXPECT_TRUE(contains(found->warnings.at(0), "model.safetensors is a symbolic link"));
}

TEST_F(CheckpointLinksTest, LinksAsLeftoversGoAndWhatTheyPointToStays) {
  for (const char* name : {".tmp-step-00000003", ".old-step-00000002", ".old-step-00000007"}) {
    link(name, "folder");
  }
  folder_.write(".tmp-step-00000004/half", "");
  fs::create_symlink(outside_ / "folder", folder_ / ".tmp-step-00000004/link");
  CheckpointWriter writer(folder_.path());
  save(writer, 3);
  EXPECT_EQ(names_in(folder_.path()),
            (std::set<std::string>{".lock", "latest", "step-00000002", "step-00000003"}));
  // Links that appear while the run goes on are not followed either.
  link(".tmp-step-00000004", "folder");
  link(".old-step-00000004", "folder");
  save(writer, 4);
  EXPECT_EQ(load_checkpoint(folder_.path())->step, 4);
}

TEST_F(CheckpointLinksTest, ALinkAsLockIsRefused) {
  link(".lock", "file");
  EXPECT_TRUE(contains(message_of(ErrorCode::kOutput, [&] { CheckpointWriter(folder_.path()); }),
                       ".lock cannot be written: it is a symbolic link"));
}

TEST(CheckpointFilesTest, LeftoversOfAnInterruptedSaveAreCleanedOrPutBack) {
  const TempFolder folder;
  { save(*std::make_unique<CheckpointWriter>(folder.path()), 4); }
  folder.write(".tmp-step-00000009/model.safetensors", "half");
  folder.write(".tracestep-0123456789abcdef.tmp", "half");
  folder.write(".old-step-00000004/meta.json", "replaced");
  fs::rename(folder / "step-00000004", folder / "kept");
  fs::remove_all(folder / ".old-step-00000004");
  fs::rename(folder / "kept", folder / ".old-step-00000004");
  const CheckpointWriter writer(folder.path());
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{".lock", "latest", "step-00000004"}));
  EXPECT_EQ(load_checkpoint(folder.path())->step, 4);
}

TEST(CheckpointFilesTest, TwoWritersCannotShareAFolder) {
  const TempFolder folder;
  const CheckpointWriter writer(folder.path());
  EXPECT_TRUE(contains(
      message_of(ErrorCode::kOutput, [&] { CheckpointWriter(folder.path()); }),
      fmt::format("another process writes its checkpoints there: process {} on ", ::getpid())));
}

TEST(CheckpointFilesTest, PlacesThatCannotBeWrittenAreRefused) {
  const TempFolder folder;
  folder.write("file", "");
  EXPECT_TRUE(contains(message_of(ErrorCode::kOutput, [&] { CheckpointWriter(folder / "file"); }),
                       "it is not a folder"));
  message_of(ErrorCode::kOutput, [&] { CheckpointWriter(folder / "file/below"); });
  message_of(ErrorCode::kOutput, [&] { CheckpointWriter("/proc/checkpoints"); });
}

TEST(CheckpointFilesTest, AFullDiskLeavesTheEarlierCheckpoint) {
  const TempFolder folder;
  CheckpointWriter writer(folder.path());
  save(writer, 1);
  // A limit on file size stands in for the full disk: the write fails half-way in the same place.
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{64 << 10, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  std::string message;
  try {
    save(writer, 2, 100'000);
  } catch (const Error& e) {
    message = e.code() == ErrorCode::kOutput ? e.what() : "another code";
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_TRUE(contains(message, "model.safetensors cannot be written: File too large"));
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{".lock", "latest", "step-00000001"}));
  EXPECT_EQ(load_checkpoint(folder.path())->step, 1);
}

TEST(CheckpointFilesTest, AKilledWriterAlwaysLeavesACompleteCheckpoint) {
  const TempFolder folder;
  {
    CheckpointWriter writer(folder.path());
    save(writer, 0);
  }
  std::int64_t last = 0;
  for (int round = 0; round < 12; ++round) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      CheckpointWriter writer(folder.path());
      for (std::int64_t step = last + 1;; ++step) save(writer, step, 20'000);
    }
    usleep(static_cast<useconds_t>(2000 + 3700 * round));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    const CheckpointWriter cleaner(folder.path());
    const auto found = load_checkpoint(folder.path());
    ASSERT_TRUE(found);
    EXPECT_TRUE(found->warnings.empty());
    EXPECT_GE(found->step, last);
    EXPECT_EQ(found->model.read("w").as<float>()[0], static_cast<float>(found->step));
    last = found->step;
  }
}

TEST(CheckpointFilesTest, AFileInThePlaceOfTheLockKeepsItsContent) {
  const TempFolder folder;
  folder.write(".lock", "of another program");
  CheckpointWriter writer(folder.path());
  EXPECT_EQ(content_of(folder / ".lock"), "of another program");
}

}  // namespace
}  // namespace tracestep
