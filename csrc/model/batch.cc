#include "model/batch.h"

#include <algorithm>

#include "base/check.h"

namespace pyrt {
namespace {

constexpr int32_t kMaxPosition = 1 << 20;  // rope angles stay within what sincos_f64 reduces exactly

void check_pages(const Batch& b, const KvCache& cache, int64_t first, int64_t last) {
  const int32_t sequence = b.sequences[first];
  for (size_t g = 0; g < cache.groups().size(); ++g) {
    const KvCache::Group& group = cache.groups()[g];
    const PageTable& table = b.tables[g];
    const int32_t seen = group.window ? std::max(0, b.positions[first] - group.window + 1) : 0;
    const int64_t last_page = b.positions[last] / kPageTokens;
    PYRT_CHECK(last_page < table.stride, "sequence ", sequence, " has no page for position ", b.positions[last], " in group ", g);
    for (int64_t p = seen / kPageTokens; p <= last_page; ++p) {
      const int32_t page = table.pages[sequence * table.stride + p];
      PYRT_CHECK(page >= 0 && page < int64_t(group.pages.size()), "page ", p, " of sequence ", sequence, " in group ", g, " is ",
                 page, ", not one of ", group.pages.size());
    }
  }
}

}  // namespace

int64_t Batch::n_wanted() const { return std::count_if(want, want + n_rows, [](uint8_t w) { return w != 0; }); }

void Batch::check(const Config& config, const KvCache& cache, std::vector<bool>& begun) const {
  PYRT_CHECK(n_rows > 0, "a step needs rows");
  PYRT_CHECK(n_prompt >= 0 && n_prompt <= n_rows, "prompt_rows is ", n_prompt, ", not in 0..", n_rows);
  PYRT_CHECK(tables.size() == cache.groups().size(), tables.size(), " page tables for ", cache.groups().size(), " cache groups");
  const int32_t limit = config.n_positions ? std::min(config.n_positions, kMaxPosition) : kMaxPosition;
  begun.assign(size_t(n_sequences), false);
  int64_t first = 0;
  for (int64_t r = 0; r < n_rows; ++r) {
    PYRT_CHECK(tokens[r] >= 0 && tokens[r] < config.n_vocab, "token ", tokens[r], " in row ", r, " is not in 0..", config.n_vocab - 1);
    PYRT_CHECK(positions[r] >= 0 && positions[r] < limit, "position ", positions[r], " in row ", r, " is not in 0..", limit - 1);
    PYRT_CHECK(sequences[r] >= 0 && sequences[r] < n_sequences, "sequence ", sequences[r], " in row ", r, " is not in 0..", n_sequences - 1);
    const bool follows = r > 0 && sequences[r] == sequences[r - 1];
    PYRT_CHECK(!follows || positions[r] == positions[r - 1] + 1, "position ", positions[r], " in row ", r, " does not follow ",
               positions[r > 0 ? r - 1 : 0]);
    if (!follows) {
      PYRT_CHECK(!begun[size_t(sequences[r])], "sequence ", sequences[r], " stands in two places of the batch");
      begun[size_t(sequences[r])] = true;
      first = r;
    }
    if (r + 1 == n_rows || sequences[r + 1] != sequences[r]) check_pages(*this, cache, first, r);
  }
}

}  // namespace pyrt
