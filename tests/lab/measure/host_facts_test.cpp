#include "lab/measure/host_facts.h"

#include <array>

#include <gtest/gtest.h>

#include "support/temp_folder.h"

namespace tracestep {
namespace {

constexpr std::array kFirstCore = {0};

TEST(HostFactsTest, LinuxFilesAreRead) {
  const TempFolder root;
  root.write("proc/loadavg", "0.31 0.40 0.38 2/345 6789\n");
  root.write("proc/stat",
             "cpu  1900 20 300 90000 60 7 8 999 0 0\ncpu0 1000 20 300 50000 60 7 8 900 0 0\n"
             "cpu1 900 0 0 40000 0 0 0 99 0 0\nintr 12\n");
  for (const auto& [core, khz] : {std::pair{"cpu0", "2400000"}, {"cpu1", "3100000"}}) {
    const std::string folder = std::string("sys/devices/system/cpu/") + core + "/cpufreq/";
    root.write(folder + "scaling_cur_freq", khz);
    root.write(folder + "scaling_governor", "powersave\n");
  }
  const HostFacts facts = read_host_facts(root.path(), kFirstCore);
  EXPECT_EQ(facts.load_1min, 0.31);
  EXPECT_EQ(facts.runnable, 2);
  EXPECT_EQ(facts.governor, "powersave");
  EXPECT_EQ(facts.clock_low_mhz, 2400);
  EXPECT_EQ(facts.clock_high_mhz, 3100);
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  EXPECT_DOUBLE_EQ(facts.busy_s.value(), 1335 / ticks);
  EXPECT_DOUBLE_EQ(facts.stolen_s.value(), 900 / ticks);
  const HostFacts both = read_host_facts(root.path(), std::array{0, 1});
  EXPECT_DOUBLE_EQ(both.busy_s.value(), (1335 + 900) / ticks);
  EXPECT_DOUBLE_EQ(both.stolen_s.value(), 999 / ticks);
  EXPECT_EQ(to_json(facts).dump(),
            R"({"load_1min":0.31,"runnable":2,"governor":"powersave","clock_low_mhz":2400.0,)"
            R"("clock_high_mhz":3100.0})");
}

TEST(HostFactsTest, WithoutAFrequencyDriverTheProcessorSaysItsClock) {
  const TempFolder root;
  root.write("proc/cpuinfo", "model name\t: some\ncpu MHz\t\t: 2596.122\ncpu MHz\t\t: 2600.5\n");
  const HostFacts facts = read_host_facts(root.path(), kFirstCore);
  EXPECT_EQ(facts.clock_low_mhz, 2596.122);
  EXPECT_EQ(facts.clock_high_mhz, 2600.5);
  EXPECT_FALSE(facts.governor);
}

TEST(HostFactsTest, WhatIsNotThereIsNull) {
  const TempFolder root;
  const HostFacts facts = read_host_facts(root.path(), kFirstCore);
  EXPECT_EQ(to_json(facts).dump(),
            R"({"load_1min":null,"runnable":null,"governor":null,"clock_low_mhz":null,)"
            R"("clock_high_mhz":null})");
  EXPECT_FALSE(others_cores(facts, facts));
}

TEST(HostFactsTest, TheWorkOfOthersIsWhatIsNotOurs) {
  const HostFacts before{.busy_s = 100, .stolen_s = 1, .own_s = 10, .at_s = 50};
  HostFacts after{.busy_s = 106, .stolen_s = 2, .own_s = 13, .at_s = 52};
  // Six seconds of work, three of them ours, and one that was stolen, in two seconds.
  EXPECT_DOUBLE_EQ(others_cores(before, after).value(), 2);
  after.own_s = 18;
  EXPECT_EQ(others_cores(before, after), 0);  // the kernel counts in hundredths
  after.at_s = 50.4;
  EXPECT_FALSE(others_cores(before, after));
}

}  // namespace
}  // namespace tracestep
