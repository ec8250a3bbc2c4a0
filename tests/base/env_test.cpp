#include "base/env.h"

#include <set>

#include <gtest/gtest.h>

#include "backends/comm/launch/launched.h"
#include "base/error.h"
#include "support/scoped_variable.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

TEST(EnvTest, EveryVariableIsListedOnceWithItsMeaning) {
  std::set<std::string_view> names;
  for (const env::Variable& v : env::variables()) {
    EXPECT_TRUE(names.insert(v.name).second) << v.name;
    EXPECT_FALSE(v.doc.empty());
    EXPECT_FALSE(v.default_value.empty());
  }
  EXPECT_TRUE(names.contains("OMP_NUM_THREADS"));
}

TEST(EnvTest, ThreadsTakeTheFirstOfAList) {
  const ScopedVariable list("OMP_NUM_THREADS", "4,2");
  EXPECT_EQ(env::threads(), 4);
}

TEST(EnvTest, KernelsAreKeptInTheUsersCacheUnlessSwitchedOff) {
  const ScopedVariable cache("XDG_CACHE_HOME", "/caches"), home("HOME", "/home/a");
  {
    const ScopedVariable unset("TRACESTEP_KERNEL_CACHE", "");
    EXPECT_EQ(env::kernel_cache(), "/caches/tracestep");
    const ScopedVariable none("XDG_CACHE_HOME", "");
    EXPECT_EQ(env::kernel_cache(), "/home/a/.cache/tracestep");
  }
  const ScopedVariable off("TRACESTEP_KERNEL_CACHE", "off");
  EXPECT_EQ(env::kernel_cache(), "");
}

TEST(EnvTest, EmptyMeansUnset) {
  const ScopedVariable threads("OMP_NUM_THREADS", ""), color("NO_COLOR", "");
  EXPECT_EQ(env::threads(), std::nullopt);
  EXPECT_FALSE(env::no_color());
}

TEST(EnvTest, NonsenseIsAnErrorNamingTheVariable) {
  const ScopedVariable threads("OMP_NUM_THREADS", "many"), verify("TRACESTEP_VERIFY", "yes");
  const ScopedVariable allocator("TRACESTEP_ALLOCATOR", "fast"), log("TRACESTEP_LOG", "loud");
  EXPECT_THROW(env::threads(), Error);
  EXPECT_THROW(env::verify_after_every_pass(), Error);
  EXPECT_THROW(env::log_level(), Error);
  try {
    env::guarded_allocator();
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.where(), "TRACESTEP_ALLOCATOR");
  }
}

TEST(EnvTest, EveryVariableIsCheckedAtOnce) {
  const auto check_all = [] {
    env::check(env::variables());
    env::check(env::kLaunchVariables);
  };
  EXPECT_NO_THROW(check_all());
  for (const auto& [name, text] : {std::pair{"OMP_NUM_THREADS", "0"},
                                   {"TRACESTEP_VERIFY", "x"},
                                   {"TRACESTEP_ALLOCATOR", "fast"},
                                   {"TRACESTEP_LOG", "QUIET"},
                                   {"RANK", "-1"},
                                   {"WORLD_SIZE", "two"},
                                   {"LOCAL_RANK", "1.5"},
                                   {"MASTER_PORT", "65536"},
                                   {"TRACESTEP_COMM_TIMEOUT", "nan"}}) {
    const ScopedVariable wrong(name, text);
    const std::string message = message_of(ErrorCode::kUsage, check_all);
    EXPECT_TRUE(contains(message, fmt::format("[{}] ", name)));
    EXPECT_TRUE(contains(message, fmt::format("\"{}\"", text)));
  }
}

TEST(EnvTest, KnownValuesAreUnderstood) {
  const ScopedVariable verify("TRACESTEP_VERIFY", "1"), log("TRACESTEP_LOG", "quiet");
  const ScopedVariable allocator("TRACESTEP_ALLOCATOR", "guarded");
  EXPECT_TRUE(env::verify_after_every_pass());
  EXPECT_TRUE(env::guarded_allocator());
  EXPECT_FALSE(env::plain_allocator());
  EXPECT_EQ(env::log_level(), LogLevel::kQuiet);
  const ScopedVariable plain("TRACESTEP_ALLOCATOR", "plain");
  EXPECT_TRUE(env::plain_allocator());
  EXPECT_FALSE(env::guarded_allocator());
}

}  // namespace
}  // namespace tracestep
