// Plays the rows of the support matrix, connects the promises of public headers with them, and compares
// docs/reference/support.md with them. WRITE=1 writes that file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <ostream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/committed_file.hpp"
#include "tests/support/scratch_folder.hpp"
#include "tests/support_matrix/matrix.hpp"

#ifdef GRADWIRE_SUPPORT_MATRIX_OF_C
#include <mpi.h>
#endif

namespace gradwire::support {

/// Prints a row for GoogleTest.
void PrintTo(const Promise& promise, std::ostream* out) { *out << promise.header << ": " << promise.quote; }

namespace {

using ::testing::HasSubstr;

const std::filesystem::path kSource = GRADWIRE_SOURCE_DIR;
const std::filesystem::path kHeaders = kSource / "include" / "gradwire";

/// Returns the letters, digits and '_' of a row's name, for the name of its test.
std::string test_name(const std::string& text) {
  std::string name;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      name += c;
    } else if (!name.empty() && name.back() != '_') {
      name += '_';
    }
  }
  return name;
}

/// Returns the Error that `call` throws; no value if it throws none.
template <class Call>
std::optional<Error> thrown_by(Call&& call) {
  try {
    std::forward<Call>(call)();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

template <class Call>
void expect_error(Call&& call, ErrorCode code, std::string_view text) {
  const std::optional<Error> error = thrown_by(std::forward<Call>(call));
  if (!error) {
    if (!::testing::Test::IsSkipped()) {
      ADD_FAILURE() << "nothing was thrown; the table says Error(" << to_string(code) << ") with \"" << text << "\"";
    }
    return;
  }
  EXPECT_EQ(to_string(error->code()), to_string(code)) << error->what();
  EXPECT_THAT(error->what(), HasSubstr(std::string(text)));
}

std::vector<Promise> all_promises() {
  std::vector<Promise> all;
  for (const std::span<const Promise> list : {promises_of_sessions(), promises_of_cpp(), promises_of_libraries()}) {
    all.insert(all.end(), list.begin(), list.end());
  }
  return all;
}

// These come first: one of them must find MPI not initialised.
class Promised : public ::testing::TestWithParam<Promise> {};

TEST_P(Promised, ErrorIsGiven) {
  const Promise& promise = GetParam();
  if (!promise.not_played.empty()) {
    GTEST_SKIP() << promise.not_played;
  }
  if (!promise.elsewhere.empty()) {
    EXPECT_THAT(test::read_text(kSource / promise.elsewhere), HasSubstr(std::string(promise.text)))
        << promise.elsewhere << " is said to play it";
    GTEST_SKIP() << "played by " << promise.elsewhere;
  }
  if (promise.call == nullptr) {
    GTEST_SKIP() << "this build has no MPI";
  }
  expect_error(
      [&] {
        try {
          promise.call();
        } catch (const NotNow& reason) {
          GTEST_SKIP() << reason.why;
        }
      },
      promise.code, promise.text);
}

std::string name_of_promise(const ::testing::TestParamInfo<Promise>& info) {
  return std::to_string(info.index) + "_" +
         test_name(std::string(info.param.header) + " " + std::string(info.param.text.substr(0, 50)));
}
INSTANTIATE_TEST_SUITE_P(SupportMatrix, Promised, ::testing::ValuesIn(all_promises()), name_of_promise);

/// Returns the text of the headers that a place has.
std::string headers_of(Place place) {
  std::vector<std::string> names;
  switch (place) {
    case Place::host:
    case Place::processes: names = {"session.hpp", "communicator.hpp", "table.hpp", "optimizer.hpp"}; break;
    case Place::cuda:
    case Place::cuda_processes: names = {"cuda.hpp"}; break;
    case Place::nccl: names = {"nccl.hpp"}; break;
    case Place::c: names = {"gradwire.h", "tables.h", "mpi.h"}; break;
  }
  std::string all;
  for (const std::string& name : names) {
    all += test::read_text(kHeaders / name);
  }
  EXPECT_GT(all.size(), 1000U);
  return all;
}

struct Played {
  const Feature* feature;
  Place place;
  [[nodiscard]] const Cell& cell() const { return feature->cells[static_cast<std::size_t>(place)]; }
};

void PrintTo(const Played& played, std::ostream* out) {
  *out << played.feature->name << ", " << to_string(played.place);
}

std::vector<Played> all_cells() {
  std::vector<Played> all;
  for (const Feature& feature : features()) {
    for (std::size_t place = 0; place < kPlaces; ++place) {
      if (feature.cells[place].kind != Cell::Kind::none) {
        all.push_back({&feature, static_cast<Place>(place)});
      }
    }
  }
  return all;
}

class Featured : public ::testing::TestWithParam<Played> {};

TEST_P(Featured, IsAsTheTableSays) {
  const auto& [feature, place] = GetParam();
  const Cell& cell = GetParam().cell();
  if (cell.kind == Cell::Kind::absent) {
    EXPECT_EQ(headers_of(place).find(cell.text), std::string::npos)
        << "a header of " << to_string(place) << " has \"" << cell.text << "\": what is it there?";
    return;
  }
  if (!cell.not_played.empty()) {
    GTEST_SKIP() << cell.not_played;
  }
  if (place == Place::c && feature->play_in_c == nullptr) {
    GTEST_SKIP() << "this build has no C API";
  }
  const auto play = [&, one = feature, at = place] { at == Place::c ? one->play_in_c() : one->play(at); };
  if (cell.kind == Cell::Kind::refused) {
    expect_error(play, cell.code, cell.text);
  } else if (const std::optional<Error> error = thrown_by(play)) {
    ADD_FAILURE() << "the table says that it works: Error(" << to_string(error->code()) << "): " << error->what();
  }
}

std::string name_of_cell(const ::testing::TestParamInfo<Played>& info) {
  return std::to_string(info.index) + "_" +
         test_name(std::string(to_string(info.param.place)) + " " + std::string(info.param.feature->name));
}
INSTANTIATE_TEST_SUITE_P(SupportMatrix, Featured, ::testing::ValuesIn(all_cells()), name_of_cell);

TEST(SupportMatrix, EachFeatureIsThereOnce) {
  std::set<std::pair<std::string_view, std::string_view>> names;
  for (const Feature& feature : features()) {
    EXPECT_TRUE(names.emplace(feature.group, feature.name).second) << feature.name;
    EXPECT_NE(feature.play, nullptr) << feature.name;
#ifdef GRADWIRE_SUPPORT_MATRIX_OF_C
    const Cell::Kind in_c = feature.cells[static_cast<std::size_t>(Place::c)].kind;
    EXPECT_EQ(feature.play_in_c == nullptr, in_c == Cell::Kind::absent || in_c == Cell::Kind::none) << feature.name;
#endif
  }
}

/// Returns a header on one line, without comment marks, and with one blank for each run of blanks.
std::string on_one_line(const std::string& text) {
  static const std::regex kMarks(R"(^\s*(///?|/\*|\*(?!/))|\*/\s*$)");
  std::istringstream lines(text);
  std::string all;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(std::regex_replace(line, kMarks, ""));
    for (std::string word; words >> word;) {
      all += (all.empty() ? "" : " ") + word;
    }
  }
  return all;
}

/// Returns the places in a header, given as one line, that promise one of the two errors.
std::vector<std::pair<std::size_t, ErrorCode>> promised_in(const std::string& header) {
  static const std::regex kPromise(
      R"(Error\((unsupported|invalid_argument)\)|GRADWIRE_(UNSUPPORTED|INVALID_ARGUMENT)(?! =))");
  std::vector<std::pair<std::size_t, ErrorCode>> found;
  for (std::sregex_iterator it(header.begin(), header.end(), kPromise), end; it != end; ++it) {
    const bool unsupported = (*it)[1] == "unsupported" || (*it)[2] == "UNSUPPORTED";
    found.emplace_back(it->position(), unsupported ? kUnsupported : kInvalid);
  }
  return found;
}

/// Returns the mismatches between a header and the rows that quote it.
std::vector<std::string> problems_of(const std::string& name, const std::string& text,
                                     const std::vector<Promise>& promises) {
  const std::string header = on_one_line(text);
  const auto places = promised_in(header);
  std::set<std::size_t> tied;
  std::vector<std::string> problems;
  for (const Promise& promise : promises) {
    if (promise.header != name) {
      continue;
    }
    const std::size_t begin = header.find(promise.quote);
    if (begin == std::string::npos || header.find(promise.quote, begin + 1) != std::string::npos) {
      problems.push_back(name + (begin == std::string::npos ? " does not say: " : " says more than once: ") +
                         std::string(promise.quote));
      continue;
    }
    bool any = false;
    for (const auto& [place, code] : places) {
      if (code == promise.code && place >= begin && place < begin + promise.quote.size()) {
        tied.insert(place);
        any = true;
      }
    }
    if (!any) {
      problems.push_back(name + ": no Error(" + std::string(to_string(promise.code)) +
                         ") in: " + std::string(promise.quote));
    }
  }
  for (const auto& [place, code] : places) {
    if (!tied.contains(place)) {
      problems.push_back(name + " promises what no row of the matrix gives: " + header.substr(place, 100));
    }
  }
  return problems;
}

TEST(SupportMatrix, EachPromiseOfAHeaderHasItsRow) {
  const std::vector<Promise> promises = all_promises();
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kHeaders)) {
    if (entry.is_regular_file()) {
      const std::string name = entry.path().filename().string();
      names.insert(name);
      for (const std::string& problem : problems_of(name, test::read_text(entry.path()), promises)) {
        ADD_FAILURE() << problem;
      }
    }
  }
  for (const Promise& promise : promises) {
    EXPECT_TRUE(names.contains(std::string(promise.header))) << promise.header;
  }
}

TEST(SupportMatrix, APromiseWithoutARowIsFound) {
  const std::string header =
      "  /// Opens it.\n  /// Error(unsupported) over device\n  /// memory.\n  void open();\n/* "
      "GRADWIRE_INVALID_ARGUMENT\n"
      " * for 0. */\n  GRADWIRE_UNSUPPORTED = 2,\n";
  const Promise over_device{"a.hpp", "open()", "Error(unsupported) over device memory.", kUnsupported, "not there"};
  const Promise for_zero{"a.hpp", "open()", "GRADWIRE_INVALID_ARGUMENT for 0.", kInvalid, "is 0"};
  EXPECT_TRUE(problems_of("a.hpp", header, {over_device, for_zero}).empty());
  EXPECT_THAT(problems_of("a.hpp", header, {over_device}), ::testing::ElementsAre(HasSubstr("ARGUMENT for 0.")));
  EXPECT_EQ(problems_of("a.hpp", header, {}).size(), 2U);
  Promise other = over_device;
  other.code = kInvalid;
  EXPECT_EQ(problems_of("a.hpp", header, {other, for_zero}).size(), 2U) << "another code has no row";
  other.quote = "Error(unsupported) over NCCL.";
  EXPECT_THAT(problems_of("a.hpp", header, {other, over_device, for_zero}),
              ::testing::ElementsAre(HasSubstr("does not say")));
  EXPECT_EQ(problems_of("a.hpp", header + header, {over_device, for_zero}).size(), 6U) << "these quotes are too short";
}

TEST(SupportMatrix, TheDocumentsAreWrittenFromIt) {
  for (const auto& [name, text] :
       {std::pair("support.md", document_of_features()), std::pair("support-errors.md", document_of_errors())}) {
    EXPECT_TRUE(test::is_committed(std::filesystem::path("docs/reference") / name, text));
  }
}

}  // namespace
}  // namespace gradwire::support

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const int failed = RUN_ALL_TESTS();
#ifdef GRADWIRE_SUPPORT_MATRIX_OF_C
  int started = 0;
  MPI_Initialized(&started);
  if (started != 0) {
    MPI_Finalize();
  }
#endif
  return failed;
}
