#include "text/merges.h"

#include <algorithm>
#include <bit>
#include <string>

namespace pyrt {
namespace {

// A polynomial in the characters, modulo 2^64: the hash of a part follows from those of two prefixes.
constexpr uint64_t kBase = 0x9E3779B97F4A7C15;

uint64_t extend(uint64_t hash, char32_t c) { return hash * kBase + c + 1; }

// Pieces by hash, with open addressing. Two texts of one hash count as one piece: no rule comes of it unchecked.
class Table {
 public:
  explicit Table(std::span<const std::u32string_view> pieces) : entries_(std::bit_ceil(4 * pieces.size() + 1), -1) {
    for (const std::u32string_view piece : pieces) {
      uint64_t hash = 0;
      for (const char32_t c : piece) hash = extend(hash, c);
      int32_t& entry = entries_[place(hash)];
      if (entry < 0) entry = int32_t(hashes_.size());
      hashes_.push_back(hash);
    }
  }

  // Index of a piece, -1 where there is none.
  int32_t find(uint64_t hash) const { return entries_[place(hash)]; }

 private:
  // The entry with this hash, or the free one where it belongs.
  size_t place(uint64_t hash) const {
    const size_t mask = entries_.size() - 1;
    size_t at = size_t(hash ^ hash >> 29) & mask;
    while (entries_[at] >= 0 && hashes_[size_t(entries_[at])] != hash) at = (at + 1) & mask;
    return at;
  }

  std::vector<int32_t> entries_;
  std::vector<uint64_t> hashes_;  // of the pieces
};

// One piece as a text of its own.
class Text {
 public:
  explicit Text(const Table& table) : table_(table) {}

  void set(std::u32string_view text) {
    size_ = text.size();
    prefixes_.assign(1, 0);
    for (const char32_t c : text) prefixes_.push_back(extend(prefixes_.back(), c));
    while (powers_.size() <= text.size()) powers_.push_back(powers_.back() * kBase);
  }

  // The piece that is text[begin:end].
  int32_t piece(size_t begin, size_t end) const {
    return table_.find(prefixes_[end] - prefixes_[begin] * powers_[end - begin]);
  }

  // Where the last two symbols meet when all others have been joined, best piece first, the leftmost of several;
  // 0 if more than two are left.
  size_t last_cut() {
    symbols_.resize(size_ + 1);
    pairs_.resize(size_);
    for (size_t i = 0; i <= size_; ++i) {
      symbols_[i] = i;
      if (i && piece(i - 1, i) < 0) return 0;  // a character that is no piece is joined with nothing
    }
    pairs_.pop_back();
    for (size_t i = 0; i < pairs_.size(); ++i) pairs_[i] = pair(i);
    while (pairs_.size() > 1) {
      const size_t best = size_t(std::min_element(pairs_.begin(), pairs_.end()) - pairs_.begin());
      if (pairs_[best] == kNone) return 0;
      symbols_.erase(symbols_.begin() + int64_t(best) + 1);
      pairs_.erase(pairs_.begin() + int64_t(best));
      if (best > 0) pairs_[best - 1] = pair(best - 1);
      if (best < pairs_.size()) pairs_[best] = pair(best);
    }
    return symbols_[1];
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  uint32_t pair(size_t i) const { return uint32_t(piece(symbols_[i], symbols_[i + 2])); }

  const Table& table_;
  size_t size_ = 0;
  std::vector<uint64_t> prefixes_, powers_{1};  // hashes of the text's beginnings; of the base
  std::vector<size_t> symbols_;                 // where each begins, and the end of the last
  std::vector<uint32_t> pairs_;                 // the piece that symbols i and i + 1 make
};

}  // namespace

std::vector<Merge> merges_of(std::span<const std::u32string_view> pieces) {
  constexpr size_t kLong = 64;  // characters above which a piece keeps all cuts: joining is quadratic
  const Table table(pieces);
  Text text(table);
  std::vector<Merge> merges, cuts;
  std::vector<size_t> places;
  for (const std::u32string_view piece : pieces) {
    text.set(piece);
    cuts.clear();
    places.clear();
    for (size_t k = 1; k < piece.size(); ++k) {
      const int32_t left = text.piece(0, k);
      const int32_t right = left < 0 ? -1 : text.piece(k, piece.size());
      if (right < 0 || pieces[size_t(left)] != piece.substr(0, k) || pieces[size_t(right)] != piece.substr(k)) continue;
      cuts.push_back({left, right});
      places.push_back(k);
    }
    if (cuts.size() > 1 && piece.size() <= kLong) {
      const size_t place = text.last_cut();
      for (size_t i = 0; i < cuts.size(); ++i)
        if (places[i] == place) merges.push_back(cuts[i]);
    } else {
      merges.insert(merges.end(), cuts.begin(), cuts.end());
    }
  }
  return merges;
}

std::vector<Merge> merges_listed(std::span<const std::u32string_view> pieces, std::span<const std::u32string_view> rules) {
  const Table table(pieces);
  Text text(table);
  std::vector<Merge> merges;
  std::u32string joined;
  for (const std::u32string_view rule : rules) {
    const size_t space = rule.find(U' ');
    if (space == rule.npos || rule.find(U' ', space + 1) != rule.npos) break;
    joined.assign(rule.substr(0, space)).append(rule.substr(space + 1));
    text.set(joined);
    const int32_t whole = text.piece(0, joined.size()), left = text.piece(0, space), right = text.piece(space, joined.size());
    if (std::min({whole, left, right}) < 0 || pieces[size_t(whole)] != joined || pieces[size_t(left)] != rule.substr(0, space) ||
        pieces[size_t(right)] != rule.substr(space + 1))
      break;
    merges.push_back({left, right});
  }
  return merges;
}

}  // namespace pyrt
