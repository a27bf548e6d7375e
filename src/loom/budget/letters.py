"""How the tokens of written language behave, as tables: what the estimator knows instead of a
vocabulary.

Fitted to o200k on public text of some forty languages, code, logs and data: the cuts and the
readiness as `scripts/letters.py` does it, the leads and blocks from averages, rounded and leaned
high by hand.
"""

from importlib.resources import files

# How readily a word is cut between two letters: the row is the first letter, the column the second,
# 0 to z for never to often. The last three rows and columns stand for all accented letters of the
# first, second and later Latin blocks.
ALPHABET = "abcdefghijklmnopqrstuvwxyz" + "\x01\x02\x03"
_CUTS = (
    "p89aih4faofdd3j8l5iabcoudl6xd"  # a
    "ihji4ijkbef7sjbjk9ggujlhlkdfc"  # b
    "6sdi6jk39j49qi3fggr1cilgpt8id"  # c
    "fjje1hjgefgkhr4ii7hkgjgigiytd"  # d
    "h3c8ekmpgvllb4eed13dcjbgrjiqd"  # e
    "aljkicjgdjhgjg1hkhkbcihhghadd"  # f
    "nionojpaeiigk9noldky6kjmiloje"  # g
    "cnhk9kkiblkviegiiil3mhighhbcd"  # h
    "ie1b8gjsfaf4i21afl81iakimo1yc"  # i
    "nhllijijbybhhh6gijbydjlhhmebd"  # j
    "lfnd2flgniiiojykmpnirkiiglsfd"  # k
    "dml8clyffktcjt3hjlfdlgihcndhd"  # l
    "abhj1lhhgnhgdiedhigntkfiih8fd"  # m
    "fj8f713esgjosxejhj61tdmiomsnd"  # n
    "em9qsh9igihmi16sq1bo5hcfaoehd"  # o
    "bojkeihgigk4mmjwh1jjdjgfdhard"  # p
    "nigljklkljlfhinhkgih6jkijjded"  # q
    "ekdjbijhfheo4t9ifchelajhosyod"  # r
    "ipehghknf4ryefe7hib4abhkvlgod"  # s
    "fgdi6lj38hemyi9fi49k1jefblktd"  # t
    "g2cf4hiicyg4a8jqyce1iighyldfd"  # u
    "ensjahdj8hhgjk8ilikikjhlohgfd"  # v
    "dhjh9iifklghhj5gli9iigihtlhfd"  # w
    "xehiifkjgmljgkijkiighrjihkgdd"  # x
    "khmnmithpqk9ljajlycqkkonijgoc"  # y
    "qjplhknkjijmllsllkoiyklmkgend"  # z
    "bgdba6fjxfqmkf1dcj8jeyidnedqu"  # àéñ…
    "mfnhoeddydfnhgfgfjjlgihdhjprl"  # čłş…
    "ddcdddddcddddcdedddcbdddddpny"  # ếộ…
)
CUTS = {
    (first, second): int(_CUTS[row * len(ALPHABET) + column], 36) / 25
    for row, first in enumerate(ALPHABET)
    for column, second in enumerate(ALPHABET)
}

# The same readiness by the length of the word (from 2 letters on; longer words as the last): after
# a space or sign, standing bare behind a digit, letter or line break, in capitals, and a common
# word in capitals.
AFTER_SIGN = (0.02, 0.14, 0.18, 0.21, 0.26, 0.25, 0.30, 0.28, 0.30, 0.30, 0.32)
BARE = (0.21, 0.62, 0.57, 0.55, 0.51, 0.47, 0.42, 0.41, 0.39, 0.39, 0.44)
CAPITALS = (0.11, 0.45, 0.46, 0.44, 0.38, 0.42, 0.43, 0.50, 0.55, 0.62, 0.62)
COMMON_CAPITALS = (0.02, 0.10, 0.10, 0.22, 0.20, 0.21, 0.35, 0.38, 0.40, 0.45, 0.45)

# Accented letters of the second Latin block belong to languages with little training text: tokens
# for each of them.
RARE_ACCENT_TOKENS = 0.2

# Tokens for the sign a word is glued to, before a common word and before any other. A space costs
# nothing.
LEADS = {
    "_": (0.09, 0.24),
    ".": (0.03, 0.25),
    "-": (0.37, 0.52),
    "/": (0.32, 0.75),
    "(": (0.11, 0.32),
    "'": (0.23, 0.35),
    "\t": (0.4, 0.65),
    "=": (0.43, 0.98),
    "#": (0.14, 0.45),
    "[": (0.46, 0.5),
    "<": (0.61, 0.5),
    ";": (0.74, 0.6),
    ":": (0.77, 0.7),
    ",": (0.88, 0.8),
    "&": (0.83, 0.7),
    "@": (0.95, 0.7),
    "*": (0.92, 0.7),
    "%": (0.95, 0.6),
    "’": (0.05, 0.3),
}
OTHER_LEAD = (0.95, 1.0)

# First code point of a block, tokens per run of its characters, tokens per character.
BLOCKS: tuple[tuple[int, float, float], ...] = (
    (0x0080, 0.0, 1.1),  # Latin-1 signs
    (0x0370, 0.1, 0.40),  # Greek
    (0x0400, 0.7, 0.19),  # Cyrillic, the Russian letters; see CYRILLIC_REST
    (0x0530, 0.4, 0.30),  # Armenian
    (0x0590, 0.3, 0.38),  # Hebrew
    (0x0600, 0.3, 0.34),  # Arabic, Persian, Urdu
    (0x0700, 0.0, 2.0),  # Syriac, Thaana, N'Ko
    (0x0900, 0.4, 0.33),  # Devanagari
    (0x0980, 0.3, 0.43),  # Bengali
    (0x0A00, 0.4, 0.48),  # Gurmukhi
    (0x0A80, 0.4, 0.40),  # Gujarati
    (0x0B00, 0.0, 1.1),  # Odia
    (0x0B80, 0.6, 0.34),  # Tamil
    (0x0C00, 0.5, 0.46),  # Telugu
    (0x0C80, 0.5, 0.40),  # Kannada, Malayalam
    (0x0D80, 0.3, 0.55),  # Sinhala
    (0x0E00, 0.3, 0.43),  # Thai
    (0x0E80, 0.0, 2.0),  # Lao, Tibetan
    (0x1000, 0.5, 0.56),  # Myanmar
    (0x10A0, 0.4, 0.32),  # Georgian
    (0x1100, 0.0, 2.0),  # Hangul letters, Ethiopic, Cherokee and other rare scripts
    (0x1780, 0.6, 0.64),  # Khmer
    (0x1800, 0.0, 2.0),  # Mongolian and other rare scripts
    (0x1E00, 0.5, 0.6),  # Latin and Greek with two accents
    (0x2000, 0.0, 1.05),  # general punctuation
    (0x2070, 0.0, 1.3),  # raised and lowered figures, currencies, letter-like signs, arrows
    (0x2200, 0.0, 1.6),  # mathematics, technical signs
    (0x2500, 0.2, 1.0),  # boxes and shapes
    (0x2600, 0.0, 2.0),  # pictures of the first plane
    (0x2800, 0.0, 2.4),  # Braille and rare signs
    (0x3000, 0.0, 1.1),  # Chinese and Japanese punctuation
    (0x3041, 0.15, 0.70),  # kana
    (0x3100, 0.0, 1.6),  # bopomofo, old Hangul letters, enclosed signs
    (0x3400, 0.0, 2.2),  # rare Chinese characters
    (0x4E00, 0.15, 0.725),  # Chinese characters; see TRADITIONAL
    (0xA000, 0.0, 2.0),  # rare scripts
    (0xAC00, 0.4, 0.62),  # Hangul
    (0xD800, 0.0, 1.0),  # halves of pairs, private use
    (0xF900, 0.0, 2.0),  # compatibility forms
    (0xFE00, 0.0, 1.0),  # variation selectors
    (0xFE10, 0.0, 1.7),  # presentation forms
    (0xFF00, 0.0, 1.2),  # full-width forms
    (0x10000, 0.0, 2.6),  # rare scripts, mathematical letters
    (0x1F000, 0.0, 2.2),  # emoji
    (0x20000, 0.0, 2.6),  # rare Chinese characters
)

# Letters of Ukrainian, Bulgarian, Serbian, Kazakh and their neighbours that Russian does not use or
# hardly uses: a word with one of them is rarer in training text and falls into more tokens.
CYRILLIC_REST = "[\u0400-\u040f\u0450\u0452-\u045f\u0460-\u052fъЪ]"
CYRILLIC_REST_TOKENS = 0.95

# Characters written only in traditional Chinese, the commonest of them; each costs this much more
# than a simplified one.
TRADITIONAL = (
    "[們這個來說時為對會學國發過還後點與應開關無見長書東車問間門電話機體實現產業動頭讓認識語請資訊檔當沒樣種從給將"
    "進經該標題選擇輸設顯錯誤連線範圍數據庫執單雙號碼處變組織結構總條類別圖網頁專案環響導幫協議區塊鍵寫讀記憶儲購買賣"
    "價錢務員際報紙歲極優權況證簡歡樂愛養戰爭輯檢測試啟啓運營幾隻邊壓縮內參函狀態屬載終預傳遞錄夾軟硬碟裝貼複製刪編"
    "譯調級轉換鏈接觸軍農華蘭陳張劉楊馬魚鳥龍齊齡嚴賦並係歷驗觀歸聽廣廳勝勞勢勵勸匯衛壞壽夠夢夥奪奮媽嬰孫寧審寬寶尋"
    "層屆島嶺幣廟廠彈彎徑徹惡慣慮慶憂懷懸戲戶拋掃掛採揚損搖搶擁擋擔擴擺攝攤敗敘敵斷暫曉榮槍橋櫃歐殘殺決淚淺減湯滅滿"
    "漢潔潛澤濃濕濟灣災烏煙熱燈燒爺牆獎獨獲瑪畢畫異療盡監盤眾確礎禮積穩窮競筆節築簽籃籌糧紀約紅純細紹絕統絲維綱緊緒"
    "緣練縣縱績繼續罰羅義習聖聞聯職脈腦臉臨舉舊艱藍藝藥蘇術補裡規視覺親計訂討訓許訴診註詞詢詳誌誠誰課談論諸謀謂講謝"
    "譜護豐財貢貧貨販責貴費賀賞賢質賬賺賽贈贊跡踐軌輕較輩輪辦辭遊達違遙遠適遲遷遺邁鄉鄰醫釋針鈴銀銅銷鋼鎖鎮鏡鐘鐵閉"
    "閒閱闊隊陽陰隨險隱雖雞離難雲靈靜頂項順須頓頗領頻顆願顧風飛飯飲飾館駐駕騎騙驅驚髮鬆鬥鬧鮮麗麥黃黨齒]"
)
TRADITIONAL_TOKENS = 1.0


def common_words() -> frozenset[str]:
    """English and programming words so common that every vocabulary has them whole."""
    return frozenset(files("loom.budget").joinpath("data/words.txt").read_text("utf-8").split())
