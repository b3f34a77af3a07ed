import sys
from playwright.sync_api import sync_playwright
with sync_playwright() as p:
    b=p.chromium.launch(executable_path='/usr/bin/chromium',args=['--no-sandbox'])
    g=b.new_page(viewport={'width':1100,'height':900}); g.goto('file://'+sys.argv[1]); g.wait_for_timeout(500)
    g.screenshot(path=sys.argv[2],full_page=True); b.close()
