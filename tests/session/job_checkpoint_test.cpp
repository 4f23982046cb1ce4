// Tests checkpoints of a whole job: it goes on from the newest one that all ranks can use, bit by bit. Mutations tried:
// parameter hashes are not compared; later checkpoints are not set aside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>

#include "gradwire/session.hpp"
#include "reseal.hpp"
#include "session/parts/checkpoints/checkpoint_folder.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::test {
namespace {

using session::CheckpointName;
using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

constexpr std::size_t kSize = 9000;

// A model of one tensor. Its gradients depend on the parameters, so values that int4 drops matter.
struct Job {
  std::vector<float> parameters = std::vector<float>(kSize, 1.0F);
  std::vector<float> gradient = std::vector<float>(kSize);
  Session session;
  TensorId id;

  explicit Job(const std::shared_ptr<Transport>& transport)
      : session(transport, Policy::uniform("int4")), id(session.add("t", view(gradient.data(), kSize))) {}

  std::uint64_t restore(const fs::path& folder) {
    const View all = view(parameters.data(), kSize);
    return session.restore(folder, std::span(&all, 1));
  }
  void checkpoint(const fs::path& folder, int keep = 3) {
    const ConstView all = view(parameters.data(), kSize);
    session.checkpoint(folder, std::span(&all, 1), keep);
  }
  /// Trains, and writes a checkpoint after every `every` steps.
  void train(std::uint64_t until, const fs::path& folder = {}, std::uint64_t every = 1, int keep = 3) {
    while (session.step() < until) {
      const auto step = static_cast<double>(session.step());
      for (std::size_t i = 0; i < kSize; ++i) {
        gradient[i] =
            parameters[i] + static_cast<float>(std::sin(0.3 * static_cast<double>(i) + session.rank() + step));
      }
      session.ready(id);
      session.finish();
      for (std::size_t i = 0; i < kSize; ++i) {
        parameters[i] -= 0.1F * gradient[i];
      }
      if (!folder.empty() && session.step() % every == 0) {
        checkpoint(folder, keep);
      }
    }
    session.wait_for_checkpoint();
  }
};

// Returns rank 0's parameters after `until` steps of a job that is never interrupted.
std::vector<float> whole_run(int world, std::uint64_t until) {
  std::vector<float> parameters;
  run_ranks(world, [&](const std::shared_ptr<Transport>& transport) {
    Job job(transport);
    job.train(until);
    if (transport->rank() == 0) {
      parameters = job.parameters;
    }
  });
  return parameters;
}

void save_run(const fs::path& folder, int world, std::uint64_t until, std::uint64_t every, int keep = 3) {
  run_ranks(world,
            [&](const std::shared_ptr<Transport>& transport) { Job(transport).train(until, folder, every, keep); });
}

/// Restores with `world` ranks and trains until `until`. Returns the step that it went on from, and rank 0's
/// parameters.
std::pair<std::uint64_t, std::vector<float>> resume(const fs::path& folder, int world, std::uint64_t until) {
  std::pair<std::uint64_t, std::vector<float>> end;
  run_ranks(world, [&](const std::shared_ptr<Transport>& transport) {
    Job job(transport);
    const std::uint64_t step = job.restore(folder);
    EXPECT_EQ(job.session.step(), step);
    job.train(until);
    if (transport->rank() == 0) {
      end = {step, job.parameters};
    }
  });
  return end;
}

/// Returns the errors of a restore into a model of `size` that fails on both ranks.
std::array<Error, 2> restore_errors(const fs::path& folder, std::size_t size = kSize) {
  std::array<Error, 2> errors{Error(ErrorCode::internal, ""), Error(ErrorCode::internal, "")};
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    Job job(transport);
    const View part = view(job.parameters.data(), size);
    errors.at(static_cast<std::size_t>(transport->rank())) =
        error_of([&] { job.session.restore(folder, std::span(&part, 1)); });
  });
  return errors;
}

fs::path newest(const fs::path& folder, std::size_t i = 0) {
  return folder / session::complete_checkpoints(folder).at(i).text();
}

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

void flip_byte(const fs::path& file, std::uint64_t at) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(static_cast<std::streamoff>(at));
  const char byte = static_cast<char>(stream.get() ^ 1);
  stream.seekp(static_cast<std::streamoff>(at));
  stream.put(byte);
}

TEST(JobCheckpoint, NothingThereIsStepZero) {
  const ScratchFolder folder;
  EXPECT_EQ(resume(folder.path() / "none", 2, 1).first, 0U);
  EXPECT_EQ(resume(folder.path(), 2, 1).first, 0U);
}

TEST(JobCheckpoint, GoesOnBitByBit) {
  const ScratchFolder folder;
  save_run(folder.path(), 3, 7, 2);
  const auto [step, parameters] = resume(folder.path(), 3, 12);
  EXPECT_EQ(step, 6U);
  EXPECT_EQ(parameters, whole_run(3, 12));
}

TEST(JobCheckpoint, TheNewestAreKept) {
  const ScratchFolder folder;
  save_run(folder.path(), 2, 9, 1, 2);
  std::vector<std::uint64_t> steps;
  for (const CheckpointName& name : session::complete_checkpoints(folder.path())) {
    steps.push_back(name.step);
  }
  ASSERT_FALSE(steps.empty());
  EXPECT_EQ(steps[0], 9U);
  EXPECT_LE(steps.size(), 3U) << "rank 0 may have looked before the others had written the last one";
  session::rotate_checkpoints(folder.path(), 2);
  EXPECT_EQ(names_in(folder.path()).size(), 2U);
  session::rotate_checkpoints(folder.path(), 1);
  EXPECT_EQ(names_in(folder.path()), std::set<std::string>{newest(folder.path()).filename().string()});
}

// A checkpoint was moved away, and a link is in its place. Mutations tried: its parameters are removed by name; a state
// is written into a folder that is a link.
TEST(JobCheckpoint, WhatALinkLeadsToIsNeitherWrittenToNorRemoved) {
  const ScratchFolder folder;
  save_run(folder.file("jobs"), 2, 4, 2);
  const fs::path moved = newest(folder.file("jobs"));
  fs::create_directory(folder.file("archive"));
  const fs::path away = folder.path() / "archive" / moved.filename();
  fs::rename(moved, away);
  fs::create_directory_symlink(away, moved);
  std::ofstream(away / "notes") << "mine";
  const auto before = [&] {
    std::map<std::string, fs::file_time_type> times;
    for (const auto& entry : fs::recursive_directory_iterator(folder.file("archive"))) {
      times[entry.path().string()] = fs::last_write_time(entry.path());
    }
    return times;
  }();
  EXPECT_EQ(resume(folder.file("jobs"), 2, 4).first, 4U) << "a job can go on from a linked checkpoint";
  const CheckpointName name = session::complete_checkpoints(folder.file("jobs")).at(0);
  session::write_checkpoint_parameters(folder.file("jobs"), name, {}, false);
  EXPECT_FALSE(fs::is_symlink(moved));
  fs::remove_all(moved);
  fs::create_directory_symlink(away, moved);
  session::rotate_checkpoints(folder.file("jobs"), 0);
  EXPECT_EQ(names_in(folder.file("jobs")), std::set<std::string>());
  for (const auto& [file, time] : before) {
    EXPECT_TRUE(fs::exists(file)) << file;
    EXPECT_EQ(fs::last_write_time(file), time) << file;
  }
}

// A pipe must not block a rank, and a file that is long only because of holes must not take memory. Mutations tried:
// the file is opened without a check of its type; the file is read to its end.
TEST(JobCheckpoint, PipesAndFilesWithHolesEndWithAnError) {
  for (const char* const name : {"parameters.gradwire", "rank-1-of-2.gradwire"}) {
    const ScratchFolder folder;
    save_run(folder.path(), 2, 6, 2);
    const fs::path file = newest(folder.path()) / name;
    fs::remove(file);
    ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
    bool told = false;
    for (const Error& error : restore_errors(folder.path())) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      told = told || std::string(error.what()).find("it is a pipe") != std::string::npos;
    }
    EXPECT_TRUE(told) << name;
  }
  const ScratchFolder folder;
  save_run(folder.path(), 2, 6, 2);
  const fs::path damaged = newest(folder.path());
  fs::resize_file(damaged / "parameters.gradwire", std::uintmax_t{1} << 42);
  EXPECT_EQ(resume(folder.path(), 2, 8).first, 4U);
  EXPECT_TRUE(fs::exists(damaged.string() + ".unusable"));
}

// A checkpoint is damaged in some way, at some rank: all ranks fall back on the previous one, and say so.
TEST(JobCheckpoint, DamageFallsBackOnTheOneBefore) {
  const std::vector<float> whole = whole_run(2, 8);
  const std::vector<std::pair<const char*, void (*)(const fs::path&)>> damages = {
      {"rank 1's file is missing: killed in the middle",
       [](const fs::path& f) { fs::remove(f / "rank-1-of-2.gradwire"); }},
      {"rank 0's too", [](const fs::path& f) { fs::remove(f / "rank-0-of-2.gradwire"); }},
      {"no parameters", [](const fs::path& f) { fs::remove(f / "parameters.gradwire"); }},
      {"cut off", [](const fs::path& f) { fs::resize_file(f / "rank-1-of-2.gradwire", 1000); }},
      {"empty", [](const fs::path& f) { fs::resize_file(f / "rank-1-of-2.gradwire", 0); }},
      {"parameters cut off", [](const fs::path& f) { fs::resize_file(f / "parameters.gradwire", 1000); }},
      {"parameters empty", [](const fs::path& f) { fs::resize_file(f / "parameters.gradwire", 0); }},
      {"a bit of rank 1's", [](const fs::path& f) { flip_byte(f / "rank-1-of-2.gradwire", 20000); }},
      {"a bit of the parameters", [](const fs::path& f) { flip_byte(f / "parameters.gradwire", 20000); }},
  };
  for (const auto& [what, damage] : damages) {
    SCOPED_TRACE(what);
    const ScratchFolder folder;
    save_run(folder.path(), 2, 6, 2);
    const fs::path damaged = newest(folder.path());
    damage(damaged);
    const auto [step, parameters] = resume(folder.path(), 2, 8);
    EXPECT_EQ(step, 4U);
    EXPECT_EQ(parameters, whole);
    EXPECT_FALSE(fs::exists(damaged));
    EXPECT_TRUE(fs::exists(damaged.string() + ".unusable"));
    EXPECT_EQ(resume(folder.path(), 2, 8).first, 4U) << "it falls back again";
  }
}

// The file is not damaged, but one rank cannot read it now, so nothing is removed. Mutation tried: it counts as
// damaged.
TEST(JobCheckpoint, WhatARankCannotReadEndsRestoreOnAll) {
  const ScratchFolder folder;
  save_run(folder.path(), 2, 6, 2);
  constexpr std::uint64_t kVersionAt = 9;
  const fs::path file = newest(folder.path()) / "rank-1-of-2.gradwire";
  flip_byte(file, kVersionAt);
  std::ifstream in(file, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  reseal(bytes);  // a newer build's state, which is intact
  std::ofstream(file, std::ios::binary) << bytes;
  const std::set<std::string> before = names_in(folder.path());
  const auto errors = restore_errors(folder.path());
  EXPECT_EQ(errors[1].code(), ErrorCode::invalid_argument);
  EXPECT_THAT(errors[1].what(), AllOf(HasSubstr("rank-1-of-2.gradwire"), HasSubstr("move")));
  EXPECT_THAT(errors[0].what(), HasSubstr("another rank cannot read"));
  EXPECT_EQ(names_in(folder.path()), before);
}

// Parameters differ, or not all ranks see the directories. Mutation tried: incomplete checkpoints stay.
TEST(JobCheckpoint, WhatNeverBecomesCompleteIsToldAndRemoved) {
  const ScratchFolder folder;
  save_run(folder.path(), 2, 10, 1, 20);
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    fs::remove(entry.path() / "rank-1-of-2.gradwire");
  }
  session::rotate_checkpoints(folder.path(), 3);
  EXPECT_LE(names_in(folder.path()).size(), 3U);
}

// If the job were killed while writing it again, it would lose the checkpoint that it went on from. Mutation tried: it
// writes that checkpoint once more.
TEST(JobCheckpoint, WhatAJobGoesOnFromIsNotWrittenAgain) {
  const ScratchFolder folder;
  save_run(folder.path(), 2, 4, 4);
  const auto written = [&] {
    std::map<std::string, fs::file_time_type> times;
    for (const auto& entry : fs::recursive_directory_iterator(folder.path())) {
      times[entry.path().string()] = fs::last_write_time(entry.path());
    }
    return times;
  };
  const auto before = written();
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    Job job(transport);
    EXPECT_EQ(job.restore(folder.path()), 4U);
    job.checkpoint(folder.path(), 3);
    job.session.wait_for_checkpoint();
  });
  EXPECT_EQ(written(), before);
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    Job job(transport);
    job.restore(folder.path());
    job.train(5, folder.path(), 1);
  });
  EXPECT_GT(written().size(), before.size()) << "later checkpoints are written";
}

TEST(JobCheckpoint, AllMayBeUnusable) {
  const ScratchFolder folder;
  save_run(folder.path(), 2, 3, 1);
  for (const CheckpointName& name : session::complete_checkpoints(folder.path())) {
    flip_byte(folder.path() / name.text() / "parameters.gradwire", 500);
  }
  EXPECT_EQ(resume(folder.path(), 2, 1).first, 0U);
  save_run(folder.path(), 2, 1, 1);  // no checkpoint of a later step is in the way
  EXPECT_EQ(resume(folder.path(), 2, 1).first, 1U);
}

TEST(JobCheckpoint, AnotherNumberOfRanks) {
  const ScratchFolder folder;
  save_run(folder.path(), 4, 6, 3);
  std::vector<float> saved;
  run_ranks(3, [&](const std::shared_ptr<Transport>& transport) {
    Job job(transport);
    EXPECT_EQ(job.restore(folder.path()), 6U);
    EXPECT_GT(job.session.residual_bytes(), 0U);
    if (transport->rank() == 0) {
      saved = job.parameters;
    }
    job.train(8, folder.path());
  });
  EXPECT_EQ(saved, whole_run(4, 6));
  EXPECT_EQ(session::complete_checkpoints(folder.path()).front().world_size, 3);
  EXPECT_EQ(resume(folder.path(), 2, 9).first, 8U);
}

// Files that two runs wrote for the same step are never mixed: their parameters differ, and so do the folders.
TEST(JobCheckpoint, RunsAreNotMixed) {
  const ScratchFolder folder;
  const std::vector<float> ones(5, 1.0F), twos(5, 2.0F);
  const ConstView a = view(ones.data(), 5), b = view(twos.data(), 5);
  EXPECT_NE(session::hash_of(std::span(&a, 1)), session::hash_of(std::span(&b, 1)));
  const ConstView parts[] = {view(ones.data(), 2), view(ones.data() + 2, 3)};
  EXPECT_NE(session::hash_of(std::span(&a, 1)), session::hash_of(parts));
}

TEST(JobCheckpoint, LaterStepsOfAnotherRunAreNotThrownAway) {
  const ScratchFolder folder;
  save_run(folder.path(), 1, 5, 5);
  Job job(make_inproc_world(1)[0]);
  job.train(2);
  const Error error = error_of([&] { job.checkpoint(folder.path()); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_NE(std::string(error.what()).find("one of step 5"), std::string::npos) << error.what();
  EXPECT_EQ(error_of([&] { job.checkpoint(folder.path() / "x", 0); }).code(), ErrorCode::invalid_argument);
}

TEST(JobCheckpoint, AnotherModelIsRefused) {
  const ScratchFolder folder;
  save_run(folder.path(), 2, 1, 1);
  for (const Error& error : restore_errors(folder.path(), kSize - 1)) {
    EXPECT_EQ(error.code(), ErrorCode::mismatch) << error.what();
  }
}

TEST(JobCheckpoint, WhatCannotBeWrittenDoesNotEndTraining) {
  const ScratchFolder folder;
  Job job(make_inproc_world(1)[0]);
  job.train(1);
  const ConstView all = view(job.parameters.data(), kSize);
  const CheckpointName name{1, 1, session::hash_of(std::span(&all, 1))};
  std::ofstream(folder.path() / name.text()) << "a file in the place of the folder";
  job.checkpoint(folder.path());
  EXPECT_EQ(error_of([&] { job.session.wait_for_checkpoint(); }).code(), ErrorCode::invalid_argument);
  job.train(2);
}

TEST(JobCheckpoint, NamesAreReadAsTheyAreWritten) {
  const CheckpointName name{1234567890123456, 16, 0xFEDCBA9876543210};
  EXPECT_EQ(CheckpointName::parse(name.text()), name);
  EXPECT_EQ((CheckpointName{7, 2, 5}).text(), "step-000000000007-of-2-0000000000000005");
  for (const char* text : {"", "step-", "step-7-of-2-0000000000000005", "step-000000000007-of-0-0000000000000005",
                           "step-000000000007-of-2-0000000000000005x", "rank-0-of-2.gradwire"}) {
    EXPECT_FALSE(CheckpointName::parse(text)) << text;
  }
}

}  // namespace
}  // namespace gradwire::test
